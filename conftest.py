"""Gives every test directory (tests/, worker/test, extensions/*/test) the fixtures of tests/."""

pytest_plugins = ["tests.fixtures", "tests.parallel"]
