"""A bounded run of the differential generator; see differential.py for longer ones."""

from __future__ import annotations

from collections import Counter

import pytest

from extensions.columnar.test.differential import Teller, attempt
from extensions.columnar.test.random_columns import KINDS
from extensions.columnar.test.random_story import Story
from tests.cluster import Node

SEEDS = 80
CHUNKS = 4  # a failure in one chunk leaves the others to run


def tell(node: Node, seeds: range) -> None:
    failures = [failure for seed in seeds if (failure := attempt(node, seed))]
    assert not failures, (
        f"{len(failures)} of {len(seeds)} stories failed, the first:\n{failures[0]}"
    )


@pytest.mark.sample(4)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_stories_end_on_columnar_as_on_heap(node: Node, chunk: int) -> None:
    size = SEEDS // CHUNKS
    tell(node, range(1 + chunk * size, 1 + (chunk + 1) * size))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(20))
def test_ten_thousand_random_stories(node: Node, chunk: int) -> None:
    tell(node, range(100_000 + chunk * 500, 100_000 + (chunk + 1) * 500))


def test_a_seed_is_a_story(node: Node) -> None:
    """Told twice, it is the same; and other seeds are other stories."""
    stories = []
    for seed in (1, 1, 2):
        teller = Teller(node, "seed_is_story")
        try:
            teller.tell_story(seed)
            stories.append([step.sql for step in teller.told])
        finally:
            teller.close()
    assert stories[0] == stories[1] != stories[2]


def test_the_stories_of_a_check_reach_every_type_and_statement() -> None:
    seen: Counter = Counter()
    for seed in range(1, SEEDS + 1):
        story = Story(seed, lambda _: [])
        steps = list(story.begin())
        for _ in range(40):
            steps += story.next(failed=False)
        steps += story.end()
        for step in steps:
            seen.update(word for word in WORDS if word in step.sql)
            seen.update(kind.type for kind in KINDS if f" {kind.type}" in step.sql)
    missing = {*WORDS, *(kind.type for kind in KINDS)} - seen.keys()
    assert not missing


WORDS = (
    "ADD COLUMN", "ANALYZE", "BEGIN", "CLUSTER", "COMMIT", "COPY", "CREATE INDEX", "DECLARE", "DELETE", "DISTINCT",
    "DROP COLUMN", "EXECUTE", "EXISTS", "FETCH", "FOR UPDATE", "FULL JOIN", "GROUP BY", "INSERT", "LATERAL", "LEFT JOIN",
    "LIKE", "LIMIT", "ON CONFLICT", "RELEASE", "RETURNING", "ROLLBACK TO", "SAVEPOINT", "SET ACCESS METHOD", "TRUNCATE",
    "UNLOGGED", "UPDATE", "VACUUM FULL", "VACUUM", "enable_custom_scan", "enable_pruning", "parallel_setup_cost",
)  # fmt: skip
