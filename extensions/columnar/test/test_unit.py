"""The format's unit tests (unit/), which need no server: sanitizers on, then damaged bytes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parent / "unit"


def run(seconds: int, seed: int, timeout: int) -> None:
    command = ["make", "-s", "-j2", "-C", UNIT, "all"]
    subprocess.run(command, check=True)
    result = subprocess.run(
        ["make", "-s", "-C", UNIT, "run", f"SECONDS={seconds}", f"SEED={seed}"],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" ok") == len(list(UNIT.glob("test_*.c"))), result.stdout


@pytest.mark.timeout(600)
def test_encoders_decoders_and_a_moment_of_damage() -> None:
    run(seconds=1, seed=1, timeout=500)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_an_hour_of_damaged_bytes() -> None:
    programs = len(list(UNIT.glob("test_*.c")))
    run(seconds=3600 // programs, seed=int.from_bytes(os.urandom(3)), timeout=7000)
