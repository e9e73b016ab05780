"""PostgreSQL's own files say on a cluster what they say on plain PostgreSQL, but for known causes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.campaign import Campaign
from tests.compat.variants import VARIANTS

# of each kind some, of seconds
A_DOZEN = [
    "create_procedure",
    "create_view",
    "misc",
    "select",
    "select_distinct",
    "subselect",
    "union",
    "select_having",
    "window",
    "returning",
    "insert_conflict",
    "rowtypes",
]


@pytest.fixture
def root() -> Iterator[Path]:
    """Where the account of the servers can make a cluster."""
    with tempfile.TemporaryDirectory(prefix="strata-compat-") as directory:
        yield Path(directory) / "cluster"


def run(variant: str, files: list[str], tmp_path: Path, root: Path) -> None:
    campaign = Campaign(files, tmp_path)
    campaign.run(VARIANTS[variant], root)
    print(campaign.summary())
    assert not campaign.unexplained, "\n\n".join(campaign.unexplained)


@pytest.mark.sample(3)
@pytest.mark.parametrize("variant", ["local", "reference", "key"])
def test_a_dozen_of_files_is_the_same(variant: str, tmp_path: Path, root: Path) -> None:
    run(variant, A_DOZEN, tmp_path, root)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_files_are_the_same(variant: str, tmp_path: Path, root: Path) -> None:
    run(variant, [], tmp_path, root)
