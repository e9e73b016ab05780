"""Gives every test directory (tests/, coordinator/test, worker/test) the fixtures of tests/."""

pytest_plugins = ["tests.fixtures", "tests.parallel"]
