"""A client that writes all the time, run on the control node: what it was promised must be there.

python writer.py CONNINFO STOP_FILE: inserts 1, 2, 3 ... into table `ledger` until the file exists, and
in the same transaction moves 1 from one account to another one, on any workers; connects anew after
every error.  Then prints as JSON the numbers whose commit was acknowledged, those of unknown outcome,
and the longest time in seconds without an acknowledgement.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psycopg

ACCOUNTS = 50


def accounts_of(number: int) -> tuple[int, int]:
    """Which account pays in the transaction of this number, and which one gets it."""
    return number % ACCOUNTS, (number * 7 + 3) % ACCOUNTS


def write(connection: psycopg.Connection, number: int) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO ledger VALUES (%s, %s)", (number, number))
        for account, amount in zip(accounts_of(number), (-1, 1), strict=True):
            connection.execute(
                "UPDATE account SET balance = balance + %s WHERE id = %s", (amount, account)
            )


def main() -> None:
    conninfo, stop = sys.argv[1], Path(sys.argv[2])
    acknowledged: list[int] = []
    unknown: list[int] = []
    number, gap, last = 0, 0.0, time.monotonic()
    connection = None
    while not stop.exists():
        try:
            connection = connection or psycopg.connect(conninfo, autocommit=True)
            number += 1
            unknown.append(number)
            write(connection, number)
        except psycopg.Error:
            if connection is not None and connection.broken:
                connection.close()
                connection = None
        else:
            acknowledged.append(unknown.pop())
            gap = max(gap, time.monotonic() - last)
            last = time.monotonic()
        time.sleep(0.05)
    print(json.dumps({"acknowledged": acknowledged, "unknown": unknown, "gap": gap}))


if __name__ == "__main__":
    main()
