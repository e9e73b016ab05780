"""Everyday tools, as their users run them: pandas writes and reads tables of the cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pandas
import pytest
import sqlalchemy

from tests.cluster import Cluster

FRAME = pandas.DataFrame(
    {
        "id": range(500),
        "name": [f"n{number}" for number in range(500)],
        "amount": [number / 4 for number in range(500)],
        "day": pandas.date_range("2024-01-01", periods=500),
    }
)


@pytest.fixture
def engine(cluster: Cluster, schema: str) -> Iterator[sqlalchemy.Engine]:
    node = cluster.coordinator
    made = sqlalchemy.create_engine(
        "postgresql+psycopg://",
        creator=lambda: node.connect(
            autocommit=False, options=f"-c search_path={schema},public,strata"
        ),
    )
    yield made
    made.dispose()


def test_pandas_writes_appends_and_reads(engine: sqlalchemy.Engine, cluster: Cluster) -> None:
    with engine.begin() as connection:
        FRAME.to_sql("facts", connection, index=False)
        connection.exec_driver_sql("SELECT create_distributed_table('facts', 'id')")
    with engine.begin() as connection:
        FRAME.assign(id=FRAME.id + 500).to_sql(
            "facts", connection, index=False, if_exists="append", method="multi"
        )
    with engine.connect() as connection:
        read = pandas.read_sql_table("facts", connection).sort_values("id", ignore_index=True)
        pandas.testing.assert_frame_equal(read[:500], FRAME, check_dtype=False)
        chunks = pandas.read_sql("SELECT id FROM facts", connection, chunksize=300)
        assert sum(len(chunk) for chunk in chunks) == 1000
        groups = pandas.read_sql(
            "SELECT mod(id, 4) AS k, sum(amount) AS s FROM facts GROUP BY 1 ORDER BY 1", connection
        )
        assert groups.k.tolist() == [0, 1, 2, 3]
        assert groups.s.sum() == sum(FRAME.amount) * 2


def test_pandas_is_told_that_a_replaced_table_is_local(
    engine: sqlalchemy.Engine, cluster: Cluster
) -> None:
    notices: list[str] = []
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        raw.add_notice_handler(
            lambda notice: notices.append(f"{notice.message_primary} / {notice.message_hint}")
        )
        for distribute in (
            "create_distributed_table('facts', 'id')",
            "create_reference_table('facts')",
        ):
            FRAME.to_sql("facts", connection, index=False, if_exists="replace")
            connection.exec_driver_sql(f"SELECT {distribute}")
            connection.commit()
        FRAME.to_sql("facts", connection, index=False, if_exists="replace")
        connection.commit()
        FRAME.to_sql("facts", connection, index=False, if_exists="replace")
        connection.commit()
    hint = "Run {}() for the new one.  To replace the rows of a table only, use TRUNCATE in place of DROP TABLE."
    assert notices == [
        'table "facts" is local, and was a distributed table before it was dropped / '
        + hint.format("create_distributed_table"),
        'table "facts" is local, and was a reference table before it was dropped / '
        + hint.format("create_reference_table"),
    ]


@pytest.mark.parametrize(
    ("statements", "names"),
    [
        (["DROP TABLE t", "CREATE TABLE t AS SELECT 1 AS id"], ["t"]),
        (["DROP TABLE t", "SELECT 1 AS id INTO t"], ["t"]),
        (["CREATE TABLE new (id integer)", "DROP TABLE t", "ALTER TABLE new RENAME TO t"], ["t"]),
        (["DROP SCHEMA odd CASCADE", "CREATE SCHEMA odd", "CREATE TABLE odd.\"T 1\" (id integer)"], ["T 1"]),
        (["BEGIN", "DROP TABLE t", "CREATE TABLE t (id integer)", "ROLLBACK"], ["t"]),
        (["DROP TABLE t", "CREATE TABLE t (id integer) USING distributed", "DROP TABLE t", "CREATE TEMP TABLE t ()"], []),
        (["DROP TABLE t", "CREATE VIEW t AS SELECT 1", "CREATE TABLE other ()"], []),
        (["SELECT undistribute_table('t')", "DROP TABLE t", "CREATE TABLE t (id integer)"], []),
    ],
)  # fmt: skip
def test_a_name_that_comes_back_local(
    cluster: Cluster, schema: str, statements: list[str], names: list[str]
) -> None:
    notices: list[str] = []
    with cluster.coordinator.connect() as session:
        session.execute(
            f"SET search_path = {schema}, strata; DROP SCHEMA IF EXISTS odd CASCADE; CREATE SCHEMA odd;"
            'CREATE TABLE t (id integer); CREATE TABLE odd."T 1" (id integer);'
            "SELECT create_distributed_table('t', 'id'), create_distributed_table('odd.\"T 1\"', 'id')"
        )
        session.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        for statement in statements:
            session.execute(statement)
        told = [notice for notice in notices if "is local" in notice]
        assert told == [
            f'table "{name}" is local, and was a distributed table before it was dropped'
            for name in names
        ]
        session.execute("DROP SCHEMA odd CASCADE")
