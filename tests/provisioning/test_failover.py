"""The short failover drills, in the lab: `make drill DRILL=--long` runs all of them."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from tests.provisioning.lab import INVENTORY
from tests.provisioning.site import Site
from tests.waiting import patience

sys.path.insert(0, str(Path(__file__).parents[2] / "ansible"))

from drills.__main__ import read_groups
from drills.drill import Drill, run_drill
from drills.drills import SHORT
from drills.lab_faults import LabFaults
from drills.report import to_markdown

pytestmark = pytest.mark.timeout(3600)


@pytest.mark.parametrize("drill", SHORT, ids=lambda drill: drill.name.replace(" ", "-"))
def test_no_acknowledged_write_is_lost_in_a(site: Site, drill: Drill):
    faults = LabFaults(site.lab, site, read_groups(INVENTORY))
    drill = dataclasses.replace(drill, limit=patience(drill.limit))
    row = run_drill(drill, faults, site.conninfo())
    print(to_markdown([row]))
    assert row.faults == []
