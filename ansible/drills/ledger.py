"""A ledger of acknowledged transfers: clients write without pause, and then count.

    python ledger.py CONNINFO [--writers 4]

It prints {"ready": true} when writers are at work, writes until its input ends, and then prints the
outcome as one line of JSON.  It is a program of its own because clients run where clients run: on
another host, or in another network, than whoever breaks things.

A transfer n writes two rows, (key a, n, -amount) and (key b, n, +amount), with some text, so that room
is needed; in every second one both keys are of different shards, which may be two workers, in the
others one key is both.  A transfer is
never repeated under its number, so whatever the client was told
        lost	is one that was acknowledged and has no rows,
        doubled	has more than its two rows,
        broken	has one row only: the sum of all amounts is not zero.
Outcomes that nobody was told (08007, a connection that died in COMMIT) may be either.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field

import psycopg

KEYS = 16  # few: each is written several times a second
PAUSE = 0.02  # between the transfers of one writer
RETRY = 0.05  # after an error
TEXT = "x" * 1000
START_TIMEOUT = 60
SETTLE_TIMEOUT = 120

CREATE = """
CREATE TABLE IF NOT EXISTS drill_entry (key integer NOT NULL, n bigint NOT NULL,
                                        amount integer NOT NULL, text text);
SELECT strata.create_distributed_table('drill_entry', 'key', storage => 'heap')
 WHERE NOT EXISTS (SELECT FROM strata.tables WHERE relation = 'drill_entry'::regclass)
"""


@dataclass
class Outcome:
    """What one run showed; `gap`: the longest time in which one key got no acknowledgement, in s."""

    acknowledged: int = 0
    gap: float = 0
    errors: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    broken: int = 0
    unknown_present: int = 0  # not acknowledged, but there
    in_doubt: int = 0

    @property
    def is_sound(self) -> bool:
        return not (self.lost or self.doubled or self.broken or self.in_doubt)


def classify(error: psycopg.Error) -> str:
    """SQLSTATE, or what the client's side knows of a connection that it lost or did not get."""
    if error.sqlstate:
        return error.sqlstate
    return "lost connection" if "closed" in str(error) or "lost" in str(error) else "no connection"


class Ledger:
    def __init__(self, conninfo: str, writers: int = 4):
        self.conninfo = conninfo
        self.writers = writers
        self.acknowledged: set[int] = set()
        self.errors: dict[str, int] = {}
        self.gap = 0.0
        self.first = 0
        self._last_times: dict[int, float] = {}
        self._next = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def connect(self) -> psycopg.Connection:
        return psycopg.connect(self.conninfo, autocommit=True)

    def create(self) -> None:
        with self.connect() as connection:
            connection.execute(CREATE)
            row = connection.execute("SELECT coalesce(max(n), 0) FROM drill_entry").fetchone()
        self.first = self._next = row[0] if row else 0

    # ---- writing ---------------------------------------------------------------------------------

    def start(self) -> None:
        self._last_times = dict.fromkeys(range(KEYS), time.monotonic())
        for _ in range(self.writers):
            thread = threading.Thread(target=self._write_until_stopped, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for key in self._last_times:
            self._note_time(key)

    def _note_time(self, key: int) -> None:
        """Of a key, because a worker that is away stops the writes to its keys only."""
        now = time.monotonic()
        self.gap = max(self.gap, now - self._last_times.get(key, now))
        self._last_times[key] = now

    def _write_until_stopped(self) -> None:
        while not self._stop.is_set():
            try:
                with self.connect() as connection:
                    while not self._stop.wait(PAUSE) and not connection.broken:
                        self._transfer(connection)
            except psycopg.Error as error:
                self._count(error)
                self._stop.wait(RETRY)

    def _transfer(self, connection: psycopg.Connection) -> None:
        with self._lock:
            self._next += 1
            n = self._next
        giver = n % KEYS
        taker = (giver + 1 + n // KEYS % (KEYS - 1)) % KEYS if n % 2 else giver
        try:
            connection.execute(
                "INSERT INTO drill_entry VALUES (%s, %s, %s, %s), (%s, %s, %s, %s)",
                (giver, n, -(n % 100 + 1), TEXT, taker, n, n % 100 + 1, TEXT),
            )
        except psycopg.Error as error:
            self._count(error)
            return
        with self._lock:
            self._note_time(giver)
            self._note_time(taker)
            self.acknowledged.add(n)

    def _count(self, error: psycopg.Error) -> None:
        with self._lock:
            name = classify(error)
            self.errors[name] = self.errors.get(name, 0) + 1

    # ---- counting --------------------------------------------------------------------------------

    def _settled(self) -> tuple[int, list[tuple]]:
        """How much is in doubt when nothing more changes, and all transfers with rows and sum."""
        with self.connect() as connection:
            row = connection.execute("SELECT count(*) FROM strata.in_doubt").fetchone()
            rows = connection.execute(
                "SELECT n, count(*), sum(amount) FROM drill_entry WHERE n > %s GROUP BY n",
                (self.first,),
            ).fetchall()
        return (row[0] if row else 0), rows

    def settle(self) -> tuple[int, list[tuple]]:
        """Wait until all can be read and nothing is in doubt, or the time is over."""
        end = time.monotonic() + SETTLE_TIMEOUT
        while True:
            try:
                in_doubt, rows = self._settled()
                if in_doubt == 0 or time.monotonic() > end:
                    return in_doubt, rows
            except psycopg.Error:
                if time.monotonic() > end:
                    raise
            time.sleep(0.2)

    def outcome(self) -> Outcome:
        """Compare what the clients were told with what is there."""
        in_doubt, rows = self.settle()
        present = {n for n, _, _ in rows}
        return Outcome(
            acknowledged=len(self.acknowledged),
            gap=round(self.gap, 2),
            errors=dict(sorted(self.errors.items())),
            lost=len(self.acknowledged - present),
            doubled=sum(count > 2 for _, count, _ in rows),
            broken=sum(count == 1 or total != 0 for _, count, total in rows),
            unknown_present=len(present - self.acknowledged),
            in_doubt=in_doubt,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Write acknowledged transfers until input ends.")
    parser.add_argument("conninfo")
    parser.add_argument("--writers", type=int, default=4)
    arguments = parser.parse_args()
    ledger = Ledger(arguments.conninfo, arguments.writers)
    ledger.create()
    ledger.start()
    end = time.monotonic() + START_TIMEOUT
    while len(ledger.acknowledged) < 20:
        if time.monotonic() > end:
            raise SystemExit(f"cannot write: {ledger.errors}")
        time.sleep(0.02)
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.read()
    ledger.stop()
    print(json.dumps(asdict(ledger.outcome())), flush=True)


if __name__ == "__main__":
    main()
