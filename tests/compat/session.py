"""A session as psql has one: statements as simple queries, all their results, COPY's data, variables."""

from __future__ import annotations

import select
import time
from contextlib import suppress
from dataclasses import dataclass, field

from psycopg import OperationalError, pq

from tests.cluster import Node

# pg_regress gives its tests these
SETTINGS = {
    "timezone": "America/Los_Angeles",
    "datestyle": "Postgres,MDY",
    "intervalstyle": "postgres_verbose",
    "statement_timeout": "120s",
    "extra_float_digits": "0",
}
WAIT = 180  # seconds; statement_timeout comes first, unless the script sets it

Row = tuple[str | None, ...]


class LostError(Exception):
    """The server ended the session, or did not answer."""


@dataclass
class Result:
    tag: str = ""
    names: list[str] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    sqlstate: str | None = None
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.sqlstate is not None

    def __str__(self) -> str:
        return f"error {self.sqlstate}: {self.message}" if self.failed else self.tag


def decode(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")


class Session:
    """One connection, with psql's variables."""

    def __init__(self, node: Node, variables: dict[str, str]):
        self.node = node
        self.variables = dict(variables)
        self.database = "strata"
        self.user = "postgres"
        self.connection: pq.PGconn | None = None
        self.copying = False  # the last statement asked for the data of a COPY
        self.notices: list[str] = []  # of the last statement
        self.connect()

    def connect(self, database: str | None = None, user: str | None = None) -> Result | None:
        """Connect, in place of the connection there is; the error when that fails."""
        database, user = database or self.database, user or self.user
        options = " ".join(f"-c {name}={value}" for name, value in SETTINGS.items())
        conninfo = (
            f"host={self.node.sockets} port={self.node.port} options='{options}'"
            f" application_name=pg_regress/compat client_encoding=UTF8"
        )
        arguments = f" dbname='{database}' user='{user}'"
        connection = pq.PGconn.connect((conninfo + arguments).encode())
        if connection.status != pq.ConnStatus.OK:
            message = decode(connection.error_message) or ""
            connection.finish()
            return Result(sqlstate="08001", message=message)
        self.close()
        connection.notice_handler = self.keep_notice
        self.connection, self.database, self.user = connection, database, user
        return None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.finish()
            self.connection = None

    @property
    def state(self) -> pq.TransactionStatus:
        return pq.TransactionStatus(self.connection.transaction_status)

    def keep_notice(self, notice: pq.abc.PGresult) -> None:
        fields = (pq.DiagnosticField.SEVERITY, pq.DiagnosticField.MESSAGE_PRIMARY)
        self.notices.append(": ".join(decode(notice.error_field(which)) or "" for which in fields))

    def run(self, text: str) -> list[Result]:
        """All results of what may be several statements, and `copying` if data is wanted next."""
        self.notices = []
        self.connection.send_query(text.encode())
        return self.results()

    def give(self, data: bytes) -> list[Result]:
        """The data that COPY FROM STDIN waits for."""
        self.copying = False
        if data:
            self.connection.put_copy_data(data)
        self.connection.put_copy_end()
        return self.results()

    def one(self, text: str) -> Result:
        """A statement of our own, of which only the last result counts."""
        return self.run(text)[-1]

    def results(self) -> list[Result]:
        results: list[Result] = []
        while True:
            self.wait()
            answer = self.connection.get_result()
            if answer is None:
                break
            if answer.status == pq.ExecStatus.COPY_IN:
                self.copying = True
                return results
            if answer.status == pq.ExecStatus.COPY_OUT:
                results.append(self.copy_out())
                continue
            results.append(read(answer))
        if self.ended:
            raise LostError(f"{self.node.name}: {decode(self.connection.error_message)}")
        return merge_copies(results) or [Result()]

    def wait(self) -> None:
        end = time.monotonic() + WAIT
        while not self.ended and self.connection.is_busy():
            if not select.select([self.connection.socket], [], [], 1)[0]:
                if time.monotonic() > end:
                    self.connection.get_cancel().cancel()
                    end += 30
                    if time.monotonic() > end:
                        raise LostError(f"{self.node.name}: no answer")
                continue
            self.take_in()

    @property
    def ended(self) -> bool:
        """Has the server closed it?"""
        return self.connection.status != pq.ConnStatus.OK

    def take_in(self) -> None:
        """Read what has arrived; an end of the session shows in its results."""
        with suppress(OperationalError):
            self.connection.consume_input()

    def copy_out(self) -> Result:
        rows = []
        while True:
            size, data = self.connection.get_copy_data(0)
            if size <= 0:
                break
            rows.append((decode(bytes(data)),))
        return Result(tag="COPY OUT", names=["line"], types=[25], rows=rows)


def merge_copies(results: list[Result]) -> list[Result]:
    """COPY TO's lines and its command tag come as two results."""
    merged: list[Result] = []
    for result in results:
        if merged and merged[-1].tag == "COPY OUT":
            lines = merged.pop()
            if not result.failed:
                result.names, result.types, result.rows = lines.names, lines.types, lines.rows
        merged.append(result)
    return merged


def read(answer: pq.abc.PGresult) -> Result:
    if answer.status == pq.ExecStatus.FATAL_ERROR:
        return Result(
            sqlstate=decode(answer.error_field(pq.DiagnosticField.SQLSTATE)) or "08006",
            message=" / ".join(
                filter(
                    None,
                    (
                        decode(answer.error_field(which))
                        for which in (
                            pq.DiagnosticField.MESSAGE_PRIMARY,
                            pq.DiagnosticField.MESSAGE_DETAIL,
                        )
                    ),
                )
            ),
        )
    columns = range(answer.nfields)
    return Result(
        tag=decode(answer.command_status) or "",
        names=[decode(answer.fname(column)) or "" for column in columns],
        types=[answer.ftype(column) for column in columns],
        rows=[
            tuple(decode(answer.get_value(row, column)) for column in columns)
            for row in range(answer.ntuples)
        ],
    )
