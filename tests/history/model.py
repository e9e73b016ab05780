"""What a history is: transactions, their statements, and what each of these read and appended.

Every row is a list to which transactions append values, and each value is appended to a key once.
So a read of a list tells which transactions it saw, in which order they wrote, and, by what it lacks,
which it missed: that is all the checker needs (Elle's method).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

READ_COMMITTED = "read committed"
REPEATABLE_READ = "repeatable read"
SERIALIZABLE = "serializable"

COMMITTED = "committed"
ABORTED = "aborted"
UNKNOWN = "unknown"  # the connection was lost while it committed


@dataclass
class Append:
    key: str
    value: int
    undone: bool = False  # by a rollback to a savepoint


@dataclass
class Read:
    key: str
    values: list[int]
    # of the newest committed row, as an UPDATE or a row lock finds it; not of the statement's snapshot
    current: bool = False


@dataclass
class Statement:
    """What was read under one snapshot, which was taken between `start` and `end`."""

    start: float
    end: float
    reads: list[Read] = field(default_factory=list)
    appends: list[Append] = field(default_factory=list)
    text: str = ""


@dataclass
class Transaction:
    number: int
    level: str
    statements: list[Statement]
    status: str
    commit_start: float  # when COMMIT was sent
    end: float = math.inf  # when it was acknowledged

    def appends(self) -> Iterable[Append]:
        return (append for statement in self.statements for append in statement.appends)


@dataclass
class History:
    transactions: list[Transaction]
    final: dict[str, list[int]]  # each key's list, read when all was over

    def save(self, path: Path) -> None:
        with path.open("w") as file:
            print(json.dumps(self.final), file=file)
            for transaction in self.transactions:
                print(json.dumps(asdict(transaction)), file=file)

    @staticmethod
    def load(path: Path) -> History:
        with path.open() as file:
            final = json.loads(file.readline())
            return History([read_transaction(json.loads(line)) for line in file], final)


def read_transaction(fields: dict) -> Transaction:
    statements = [
        Statement(
            each["start"],
            each["end"],
            [Read(**read) for read in each["reads"]],
            [Append(**append) for append in each["appends"]],
            each["text"],
        )
        for each in fields.pop("statements")
    ]
    return Transaction(statements=statements, **fields)
