from __future__ import annotations

import pytest

from tests.cluster import Cluster
from tests.transaction.bank import Bank, make_bank


@pytest.fixture
def bank(cluster: Cluster, schema: str) -> Bank:
    return make_bank(cluster, schema)
