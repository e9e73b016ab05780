"""Gives every test directory (tests/, worker/test, extensions/*/test) the fixtures of tests/."""

from tests.scratch import use_memory

pytest_plugins = ["tests.fixtures", "tests.parallel"]

use_memory()
