"""Another columnar store in the same database, or in the same session, is a clear error."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psycopg
import pytest

from tests.cluster import Node
from tests.installation import find_binaries, give_to_server

# A library that registers a custom scan of our name, as another columnar store might.
OTHER_LIBRARY = """
#include "postgres.h"
#include "fmgr.h"
#include "nodes/extensible.h"
PG_MODULE_MAGIC;
void _PG_init(void);
static const CustomScanMethods methods = {.CustomName = "ColumnarScan"};
void _PG_init(void) { RegisterCustomScanMethods(&methods); }
"""


@pytest.fixture
def database(node: Node, schema_name: str) -> Iterator[psycopg.Connection]:
    """A connection to a new database without our extension."""
    name = f"db_{schema_name}"
    node.execute(f"DROP DATABASE IF EXISTS {name}")
    node.execute(f"CREATE DATABASE {name}")
    with node.connect(name) as connection:
        yield connection
    node.execute(f"DROP DATABASE {name}")


def test_an_access_method_of_our_name_is_a_clear_error(database: psycopg.Connection) -> None:
    database.execute("CREATE ACCESS METHOD columnar TYPE TABLE HANDLER heap_tableam_handler")
    with pytest.raises(psycopg.errors.DuplicateObject) as raised:
        database.execute("CREATE EXTENSION strata_columnar")
    diagnosis = raised.value.diag
    assert diagnosis.message_primary == 'access method "columnar" already exists in this database'
    assert diagnosis.message_detail == "It belongs to another installation."
    assert "another database" in (diagnosis.message_hint or "")
    database.execute("DROP ACCESS METHOD columnar")
    database.execute("CREATE EXTENSION strata_columnar")


def test_the_error_names_the_extension_that_was_first(database: psycopg.Connection) -> None:
    database.execute("CREATE EXTENSION hll")
    database.execute("CREATE ACCESS METHOD columnar TYPE TABLE HANDLER heap_tableam_handler")
    database.execute("ALTER EXTENSION hll ADD ACCESS METHOD columnar")
    with pytest.raises(psycopg.errors.DuplicateObject) as raised:
        database.execute("CREATE EXTENSION strata_columnar")
    assert raised.value.diag.message_detail == "It belongs to hll."


def test_a_library_with_a_custom_scan_of_our_name_is_a_clear_error(
    node: Node, schema_name: str
) -> None:
    library = build_other_library(node)
    node.execute(f"CREATE TABLE {schema_name} (v integer) USING columnar")
    node.execute(f"INSERT INTO {schema_name} VALUES (1)")
    with node.connect() as connection:
        connection.execute(f"LOAD '{library}'")
        for _ in range(2):
            with pytest.raises(psycopg.errors.DuplicateObject) as raised:
                connection.execute(f"SELECT * FROM {schema_name}")
            diagnosis = raised.value.diag
            assert "together with another columnar extension" in (diagnosis.message_primary or "")
            assert "shared_preload_libraries" in (diagnosis.message_hint or "")
    with node.connect() as connection:  # ours is first
        assert connection.execute(f"SELECT * FROM {schema_name}").fetchall() == [(1,)]
        with pytest.raises(psycopg.Error, match="already exists"):
            connection.execute(f"LOAD '{library}'")
        assert connection.execute(f"SELECT * FROM {schema_name}").fetchall() == [(1,)]
    node.execute(f"DROP TABLE {schema_name}")


def build_other_library(node: Node) -> str:
    source = node.root / "other_columnar.c"
    library = source.with_suffix(".so")
    source.write_text(OTHER_LIBRARY)
    headers = subprocess.run(
        [find_binaries() / "pg_config", "--includedir-server"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{headers}", "-o", library, source], check=True)
    give_to_server(library, 0o755)
    return str(library)
