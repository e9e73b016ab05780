"""Running programs of this machine, and waiting for what they bring about."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path


class LabError(Exception):
    """Something of the lab did not do what it should; the message says what it printed."""


def run(arguments: list[str | Path], check: bool = True, **options) -> subprocess.CompletedProcess:
    """Run a program to its end; LabError with its output when it fails."""
    words = [str(argument) for argument in arguments]
    done = subprocess.run(
        words,
        **{"text": True, "errors": "replace", "stdin": subprocess.DEVNULL}
        | {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        | options,
    )
    if check and done.returncode != 0:
        raise LabError(
            f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}".rstrip()
        )
    return done


def wait_for(what: str, condition: Callable[[], object], timeout: float) -> None:
    """Return when condition() holds; LabError when it does not within `timeout` seconds."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise LabError(f"waited {timeout:g} s in vain: {what}")
        time.sleep(0.05)
