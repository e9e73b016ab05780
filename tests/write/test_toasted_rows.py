"""Values that a table stores out of line arrive whole, also when the rows wait beyond the snapshot that read them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.pair import Pair, open_pair

SOURCE = """
CREATE TABLE source (id integer PRIMARY KEY, body text, more jsonb);
ALTER TABLE source ALTER body SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL;
INSERT INTO source SELECT g, repeat(chr(97 + g), 3000 * g), jsonb_build_object('k', repeat('v', 5000 * g))
  FROM generate_series(1, 4) AS g
"""
ROWS = "SELECT id, length(body), md5(body), md5(more::text) FROM target"


@pytest.fixture(params=["heap", "columnar", "heap with a key", "reference"])
def pair(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with open_pair(cluster, "test_toasted_rows") as made:
        made.execute(SOURCE)
        key = "" if request.param in ("heap", "columnar") else " PRIMARY KEY"
        made.execute(
            f"CREATE TABLE target (id integer{key}, body text, more jsonb);"
            "ALTER TABLE target ALTER body SET STORAGE EXTERNAL"
        )
        if request.param == "reference":
            made.reference("target")
        else:
            made.distribute("target", "id", storage=request.param.split()[0])
        yield made


IN_A_LOOP = """
DO $$
DECLARE
    s record;
    t text;
BEGIN
    FOR s IN SELECT id FROM source ORDER BY id LOOP
        INSERT INTO target SELECT * FROM source WHERE id = s.id;
        COMMIT;
        SELECT body INTO t FROM target WHERE id = s.id;
        RAISE NOTICE '%', length(t);
        UPDATE target SET body = source.body || 'x', more = source.more
          FROM source WHERE source.id = 5 - target.id AND target.id = s.id;
        COMMIT;
        INSERT INTO target SELECT id + 10, body, more FROM target WHERE id = s.id;
        COMMIT;
    END LOOP;
END $$
"""


def test_a_procedure_that_commits_writes_them(pair: Pair) -> None:
    pair.same(IN_A_LOOP)
    pair.same(ROWS)


AFTER = """
CREATE TABLE seen (id integer, body text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen VALUES (new.id, md5(new.body) || md5(new.more::text));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER later AFTER INSERT OR UPDATE ON target DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note()
"""


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO target SELECT * FROM source",
        "INSERT INTO target VALUES (1), (2), (3);"
        "UPDATE target SET body = source.body, more = source.more FROM source WHERE source.id = target.id",
    ],
)
def test_a_deferred_trigger_sees_them_after_their_source_is_gone(pair: Pair, change: str) -> None:
    """The values were read from a table whose rows others delete and VACUUM before the transaction ends."""
    pair.execute(AFTER)
    with pair.transaction("COMMIT"):
        for statement in change.split(";"):
            pair.same(statement)
        for node in (pair.cluster.coordinator, pair.cluster.plain):
            with node.connect() as other:
                other.execute(f"DELETE FROM {pair.schema}.source")
                other.execute(f"VACUUM (TRUNCATE off) {pair.schema}.source")
    pair.same(ROWS)
    pair.same("SELECT * FROM seen")
