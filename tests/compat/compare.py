"""What a statement did on the cluster beside what it did on plain PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.assert_same import has_top_level_order, multiset_difference, sequence_difference
from tests.compat.session import Result, Row

SAME, REFUSED, DIFFERENT = "same", "refused", "different"
NOT_SUPPORTED = "0A000"
FIRST_USER_OID = 16384

OID, XID, XID8, LSN = 26, 28, 5069, 3220
ACCIDENTAL = frozenset({XID, XID8, LSN})  # a server's own counters


def compare(
    text: str, ours: Sequence[Result], plain: Sequence[Result], exact: bool
) -> tuple[str, str]:
    """The class, and what is different.  `exact`: also plans and the order of unordered rows."""
    for mine, theirs in zip(ours, plain, strict=False):
        found = compare_result(text, mine, theirs, exact)
        if found[0] != SAME:
            return found
    if len(ours) != len(plain):
        return DIFFERENT, f"cluster has {len(ours)} results, plain {len(plain)}"
    return SAME, ""


def compare_result(text: str, ours: Result, plain: Result, exact: bool) -> tuple[str, str]:
    if ours.sqlstate != plain.sqlstate:
        found = REFUSED if ours.sqlstate == NOT_SUPPORTED else DIFFERENT
        return found, f"cluster: {ours}\nplain:   {plain}"
    if ours.failed:
        return SAME, ""
    if not exact and (is_explain(text) or ours.tag == plain.tag == "EXPLAIN"):
        return SAME, ""
    if ours.tag != plain.tag or ours.names != plain.names:
        return DIFFERENT, f"cluster: {ours.tag} {ours.names}\nplain:   {plain.tag} {plain.names}"
    if [shown_type(oid) for oid in ours.types] != [shown_type(oid) for oid in plain.types]:
        return DIFFERENT, f"types: cluster {ours.types}, plain {plain.types}"
    if ours.rows == plain.rows:
        return SAME, ""
    ordered = exact or has_top_level_order(text)
    check = sequence_difference if ordered else multiset_difference
    mine, theirs = (mask(result.rows, result.types) for result in (ours, plain))
    difference = check(mine, theirs, plain.types)
    if difference and ordered and not multiset_difference(mine, theirs, plain.types):
        difference = f"order: {difference}"
    return (DIFFERENT, difference) if difference else (SAME, "")


def is_explain(text: str) -> bool:
    return bool(re.match(r"(\s|--[^\n]*\n)*explain\b", text, re.IGNORECASE))


def shown_type(oid: int) -> int:
    return min(oid, FIRST_USER_OID)


def mask(rows: Sequence[Row], types: Sequence[int]) -> list[Row]:
    """Without OIDs of users' objects, and what a server only counts."""
    if not any(oid == OID or oid in ACCIDENTAL for oid in types):
        return list(rows)
    return [tuple(map(mask_value, row, types)) for row in rows]


def mask_value(value: str | None, type_oid: int) -> str | None:
    if value is None:
        return None
    if type_oid in ACCIDENTAL or (type_oid == OID and int(value) >= FIRST_USER_OID):
        return "..."
    return value
