"""A worker's database without a coordinator, and who uses it; the sessions are in conftest.py."""

from __future__ import annotations

import psycopg

DATABASE = "strata_worker_alone"
ROLE = "strata_worker_guest"
OWNER = "strata_worker_owner"


def value(connection: psycopg.Connection, query: str, params=None):
    ((only,),) = connection.execute(query, params).fetchall()
    return only
