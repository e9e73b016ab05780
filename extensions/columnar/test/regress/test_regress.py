"""PostgreSQL's own tests on columnar tables, and what tells their differences apart."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from extensions.columnar.test.regress.transcript import (
    Difference,
    Kind,
    compare,
    compare_permutations,
    cut,
    end_copies,
)

PROJECT = Path(__file__).resolve().parents[4]

SCRIPT = """\
-- two rows
CREATE TABLE t (a int);
COPY t FROM stdin;
1
2
\\.

SELECT a FROM t; -- unordered
SELECT a
  FROM t ORDER BY a;
EXPLAIN (costs off) SELECT * FROM t;
"""
ECHO = [line for line in SCRIPT.splitlines() if line not in ("1", "2", "\\.", "")]


def transcript(*results: str) -> str:
    """What psql -a prints: each result behind the line that ends its statement."""
    ends = [3, 5, 6]
    lines = []
    for number, line in enumerate(ECHO):
        lines.append(line)
        if number in ends:
            lines += results[ends.index(number)].splitlines()
    return "\n".join(lines)


HEAP = transcript(
    " a\n---\n 1\n 2\n(2 rows)\n", " a\n---\n 1\n 2\n(2 rows)\n", "QUERY PLAN\n---\n Seq"
)


def differences(got: str) -> list[Difference]:
    return list(compare(SCRIPT, HEAP, got))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("options", [[], ["--custom-scan"]], ids=["plain", "scan"])
def test_core_tests_differ_from_heap_only_as_listed(options: list[str]):
    command = [sys.executable, "-m", "extensions.columnar.test.regress.run", *options]
    result = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-20000:] + result.stderr


def test_results_stand_beside_their_statements():
    results = cut(SCRIPT, HEAP)
    assert sorted(results) == [7, 9, 10]
    assert results[10].startswith("QUERY PLAN")


def test_a_wrong_row_is_a_difference():
    got = transcript(
        " a\n---\n 1\n 2\n(2 rows)\n", " a\n---\n 1\n 3\n(2 rows)\n", "QUERY PLAN\n---\n Seq"
    )
    (difference,) = differences(got)
    assert difference.kind is Kind.OTHER
    assert difference.statement == "SELECT a\n  FROM t ORDER BY a;"


def test_an_error_of_an_earlier_statement_stays_with_it():
    got = HEAP.replace("COPY t FROM stdin;\n", "COPY t FROM stdin;\nERROR:  no\n")
    (difference,) = differences(got)
    assert (difference.kind, difference.statement) == (Kind.OTHER, "COPY t FROM stdin;")


def test_the_order_of_rows_counts_where_it_was_asked_for():
    other_order = " a\n---\n 2\n 1\n(2 rows)\n"
    same = " a\n---\n 1\n 2\n(2 rows)\n"
    plan = "QUERY PLAN\n---\n Seq"
    assert [d.kind for d in differences(transcript(other_order, same, plan))] == [Kind.ORDER]
    assert [d.kind for d in differences(transcript(same, other_order, plan))] == [Kind.TIES]


def test_another_plan_is_one_but_an_error_is_not():
    assert [d.kind for d in differences(HEAP.replace(" Seq", " Custom"))] == [Kind.PLAN]
    failed = HEAP.replace("QUERY PLAN\n---\n Seq", "ERROR:  could not plan")
    assert [d.kind for d in differences(failed)] == [Kind.OTHER]


def test_a_missing_serialization_failure_is_never_excused():
    quiet = "starting permutation: r1 w2 c1\nstep r1: SELECT 1\nstep c1: COMMIT;\n"
    loud = quiet + (
        "ERROR:  could not serialize access due to read/write dependencies among transactions\n"
    )
    assert [d.kind for d in compare_permutations(quiet, loud)] == [Kind.CONFLICT]
    assert [d.kind for d in compare_permutations(loud, quiet)] == [Kind.OTHER]


def test_a_copy_without_data_gets_an_end():
    failing = "COPY t (b) FROM stdin; -- error\nSELECT 1;\nCOPY t FROM stdin;\n1\n\\.\n"
    assert end_copies(failing).splitlines() == [
        "COPY t (b) FROM stdin; -- error",
        "\\.",
        "SELECT 1;",
        "COPY t FROM stdin;",
        "1",
        "\\.",
    ]
