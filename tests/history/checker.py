"""Judges a history: `check(history)` returns what PostgreSQL would not have allowed.

Without a graph it finds:

    G1a             a value of an aborted transaction, or of a savepoint that was undone, was read
    G1b             a value was read that its transaction followed by another one for the same key
    lost append     an acknowledged value is not there in the end
    torn commit     some of a transaction's values are there in the end, others are not
    broken order    two reads of one key, of which none is the beginning of the other

Everything else is a cycle in one graph.  A transaction that committed is a point C; what was read under
one snapshot is a point S, which in READ COMMITTED is a statement, else a transaction.  In PostgreSQL all
these points are in one order: a snapshot sees exactly what was committed before it.  So these are
edges "was before":

    ww  C(a) -> C(b)    b appended after a; where b has one snapshot for all, C(a) -> S(b), as
                        it would have failed otherwise ("could not serialize access")
    wr  C(a) -> S       S saw a value of a
    rw  S -> C(b)       S missed a value of b
    po  S -> C(a)       S is a's own
    rt                  one had ended before the other began, by the client's clock

and any cycle is an anomaly, named by its edges:

    G0              ww
    G1c             ww and wr
    lost update     one rw, which a ww to the same snapshot contradicts
    torn statement  one rw of a statement that is contradicted by what the same statement saw
    G-single        the same of a transaction
    long fork       several rw: two snapshots of which each misses what the other one saw
    stale read      one of those with rw, in which real time is needed
    time travel     one of those without rw, in which real time is needed

What remains is write skew, which only SERIALIZABLE excludes, and only among its own kind: a second graph
has these transactions as points, and edges ww, wr and rw between them; a cycle there is G2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import networkx

from tests.history.model import (
    COMMITTED,
    READ_COMMITTED,
    SERIALIZABLE,
    UNKNOWN,
    Append,
    History,
    Read,
    Statement,
    Transaction,
)

Point = tuple  # ("C", number), ("S", number, statement or 0), ("T", index): an instant


@dataclass(frozen=True)
class Anomaly:
    name: str
    detail: str

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}"


@dataclass(frozen=True)
class Writer:
    transaction: Transaction
    append: Append


class Judge:
    """One history with what is looked up often: writers, orders, and who has committed."""

    def __init__(self, history: History):
        self.history = history
        self.anomalies: list[Anomaly] = []
        self.writers: dict[tuple[str, int], Writer] = {}
        self.last: dict[tuple[int, str], int] = {}  # the last value of a transaction for a key
        for transaction in history.transactions:
            for append in transaction.appends():
                self.writers[append.key, append.value] = Writer(transaction, append)
                if not append.undone:
                    self.last[transaction.number, append.key] = append.value
        self.orders = {key: list(values) for key, values in history.final.items()}
        self.positions = {
            key: {value: index for index, value in enumerate(order)}
            for key, order in self.orders.items()
        }
        self.committed = [t for t in history.transactions if self.has_committed(t)]

    def report(self, name: str, detail: str) -> None:
        self.anomalies.append(Anomaly(name, detail))

    def is_final(self, append: Append) -> bool:
        return append.value in self.positions.get(append.key, {})

    def has_committed(self, transaction: Transaction) -> bool:
        """An unknown outcome is told by what is there in the end."""
        if transaction.status != UNKNOWN:
            return transaction.status == COMMITTED
        return any(self.is_final(a) for a in transaction.appends() if not a.undone)

    # ---- without a graph -----------------------------------------------------------------------

    def check_ends(self) -> None:
        for transaction in self.committed:
            lost = [a for a in transaction.appends() if not a.undone and not self.is_final(a)]
            kept = [a for a in transaction.appends() if not a.undone and self.is_final(a)]
            if lost and kept:
                self.report("torn commit", f"{name(transaction)} lacks {lost}, has {kept}")
            elif lost:
                self.report("lost append", f"{name(transaction)} lacks {lost}")
        for key, order in self.orders.items():
            if len(set(order)) < len(order):
                self.report("broken order", f"a value of {key} is there twice: {order}")
            for value in order:
                self.check_value(key, value, "the final state")

    def check_value(self, key: str, value: int, reader: str) -> None:
        writer = self.writers.get((key, value))
        if writer is None:
            self.report("G1a", f"{reader} has {value} of {key}, which nobody appended")
        elif writer.append.undone or not self.has_committed(writer.transaction):
            self.report(
                "G1a", f"{reader} has {value} of {key}, undone by {name(writer.transaction)}"
            )

    def check_read(self, transaction: Transaction, statement: Statement, read: Read) -> None:
        reader = f"{name(transaction)} [{statement.text}]"
        order = self.orders.get(read.key, [])
        own = {a.value for a in transaction.appends() if a.key == read.key}
        foreign = [value for value in read.values if value not in own]
        for value in foreign:
            self.check_value(read.key, value, reader)
        if foreign:
            writer = self.writers.get((read.key, foreign[-1]))
            if writer and self.last.get((writer.transaction.number, read.key)) != foreign[-1]:
                self.report("G1b", f"{reader} has {foreign[-1]} of {read.key}, not the last one")
        if foreign != [value for value in order if value not in own][: len(foreign)]:
            self.report("broken order", f"{reader} has {read.values} of {read.key}, not {order}")

    def check_reads(self) -> None:
        for transaction in self.history.transactions:
            for statement in transaction.statements:
                for read in statement.reads:
                    self.check_read(transaction, statement, read)

    # ---- points and edges ------------------------------------------------------------------------

    def seen_and_missed(
        self, transaction: Transaction, read: Read
    ) -> tuple[Transaction | None, Transaction | None]:
        """Of other transactions: the last one that the read saw, the first one that it missed."""
        order = self.orders.get(read.key, [])
        positions = self.positions.get(read.key, {})
        writers = [self.writers.get((read.key, value)) for value in order]
        end = max((positions.get(value, -1) for value in read.values), default=-1) + 1
        seen = [w.transaction for w in writers[:end] if w and w.transaction is not transaction]
        missed = [w.transaction for w in writers[end:] if w and w.transaction is not transaction]
        return (seen[-1] if seen else None), (missed[0] if missed else None)

    def snapshots(self, transaction: Transaction) -> Iterable[tuple[Point, Statement, list[Read]]]:
        """The points S, the statement in which each was taken, and what was read there."""
        if not transaction.statements:
            return
        if transaction.level == READ_COMMITTED:
            for index, statement in enumerate(transaction.statements):
                reads = [read for read in statement.reads if not read.current]
                yield ("S", transaction.number, index), statement, reads
        else:
            reads = [read for each in transaction.statements for read in each.reads]
            yield ("S", transaction.number, 0), transaction.statements[0], reads

    def successions(self) -> Iterable[tuple[Transaction, Transaction]]:
        """Pairs of transactions of which the second one appended right after the first one."""
        for key, order in self.orders.items():
            writers = [self.writers[key, value] for value in order if (key, value) in self.writers]
            for before, after in pairwise(writers):
                if before.transaction is not after.transaction:
                    yield before.transaction, after.transaction

    def order_graph(self) -> networkx.DiGraph:
        graph = networkx.DiGraph()
        times: list[tuple[float, float, Point]] = []  # start and end of each point

        for transaction in self.committed:
            times.append((transaction.commit_start, transaction.end, ("C", transaction.number)))
        for before, after in self.successions():
            point = ("C" if after.level == READ_COMMITTED else "S", after.number)
            target = point if point[0] == "C" else (*point, 0)
            add_edge(graph, ("C", before.number), target, "ww")
        for transaction in self.history.transactions:
            for point, statement, reads in self.snapshots(transaction):
                times.append((statement.start, statement.end, point))
                graph.add_node(point, statement=transaction.level == READ_COMMITTED)
                if self.has_committed(transaction):
                    add_edge(graph, point, ("C", transaction.number), "po")
                for read in reads:
                    seen, missed = self.seen_and_missed(transaction, read)
                    if seen is not None:
                        add_edge(graph, ("C", seen.number), point, "wr")
                    if missed is not None:
                        add_edge(graph, point, ("C", missed.number), "rw")
        add_real_time(graph, times)
        return graph

    def serializable_graph(self) -> networkx.DiGraph:
        graph = networkx.DiGraph()
        members = {t.number for t in self.committed if t.level == SERIALIZABLE}

        def add(before: Transaction | None, after: Transaction | None, kind: str) -> None:
            if (
                before
                and after
                and before is not after
                and {before.number, after.number} <= members
            ):
                add_edge(graph, ("C", before.number), ("C", after.number), kind)

        for before, after in self.successions():
            add(before, after, "ww")
        for transaction in self.committed:
            for _, _, reads in self.snapshots(transaction):
                for read in reads:
                    seen, missed = self.seen_and_missed(transaction, read)
                    add(seen, transaction, "wr")
                    add(transaction, missed, "rw")
        return graph

    # ---- cycles ----------------------------------------------------------------------------------

    def report_cycles(self) -> None:
        found = False
        graph = self.order_graph()
        for cycle in find_cycles(graph):
            found = True
            self.report(classify(graph, cycle), self.describe(graph, cycle))
        if found:
            return  # whose cycles would be found in the second graph again
        graph = self.serializable_graph()
        for cycle in find_cycles(graph):
            self.report("G2", self.describe(graph, cycle))

    def describe(self, graph: networkx.DiGraph, cycle: list[Point]) -> str:
        """The cycle, without the instants, and the statements that are on it."""
        by_number = {t.number: t for t in self.history.transactions}
        text = ""
        for before, after in edges_of(cycle):
            kind = "rt" if "T" in (before[0], after[0]) else edge_kind(graph, before, after)
            if before[0] != "T":
                text += f" {'.'.join(str(part) for part in before)} -{kind}->"
        texts = []
        for point in cycle:
            if point[0] != "S":
                continue
            transaction = by_number[point[1]]
            for _, statement, reads in (s for s in self.snapshots(transaction) if s[0] == point):
                texts.append(
                    f"{name(transaction)} at {statement.start:.4f}..{statement.end:.4f}: "
                    f"{statement.text}: " + ", ".join(f"{r.key}={r.values[-4:]}" for r in reads[:8])
                )
            texts += [
                f"C.{t.number} at {t.commit_start:.4f}..{t.end:.4f} appended "
                + ", ".join(f"{a.key}+{a.value}" for a in t.appends())
                for t in (by_number[p[1]] for p in cycle if p[0] == "C")
            ]
        return text.strip() + "".join(f"\n    {line}" for line in dict.fromkeys(texts))


def name(transaction: Transaction) -> str:
    return f"transaction {transaction.number} ({transaction.level}, {transaction.status})"


def add_edge(graph: networkx.DiGraph, before: Point, after: Point, kind: str) -> None:
    """There may be several reasons for one edge."""
    if graph.has_edge(before, after):
        graph.edges[before, after]["kinds"].add(kind)
    else:
        graph.add_edge(before, after, kinds={kind})


def add_real_time(graph: networkx.DiGraph, times: list[tuple[float, float, Point]]) -> None:
    """What has ended leads to the first instant after it, each instant to the next and to what begins."""
    instants = sorted({start for start, _, _ in times})
    index = {instant: number for number, instant in enumerate(instants)}
    events = sorted((end, point) for _, end, point in times)
    number = 0

    for first, second in pairwise(range(len(instants))):
        add_edge(graph, ("T", first), ("T", second), "rt")
    for start, _, point in times:
        add_edge(graph, ("T", index[start]), point, "rt")
    for end, point in events:
        while number < len(instants) and instants[number] <= end:
            number += 1
        if number == len(instants):
            return
        add_edge(graph, point, ("T", number), "rt")


# What explains most stands first: an edge with several reasons counts as the first of them.
KINDS = ("ww", "wr", "po", "rw", "rt")


def edge_kind(graph: networkx.DiGraph, before: Point, after: Point) -> str:
    kinds = graph.edges[before, after]["kinds"]
    return next(kind for kind in KINDS if kind in kinds)


def edges_of(cycle: list[Point]) -> list[tuple[Point, Point]]:
    return list(zip(cycle, cycle[1:] + cycle[:1], strict=True))


def find_cycles(graph: networkx.DiGraph) -> Iterable[list[Point]]:
    """One cycle for each strongly connected component: of the weakest kinds of edges that have one, the shortest."""
    for component in networkx.strongly_connected_components(graph):
        if len(component) < 2:
            continue
        inside = graph.subgraph(component)
        for allowed in ({"ww", "po"}, {"ww", "wr", "po"}, {"ww", "wr", "po", "rw"}, set(KINDS)):
            part = networkx.DiGraph(
                (a, b) for a, b, kinds in inside.edges(data="kinds") if kinds & allowed
            )
            cycle = shortest_cycle(part)
            if cycle:
                yield cycle
                break


def shortest_cycle(graph: networkx.DiGraph) -> list[Point] | None:
    best: list[Point] | None = None
    for component in networkx.strongly_connected_components(graph):
        if len(component) < 2:
            continue
        inside = graph.subgraph(component)
        starts = [p for p in component if p[0] == "S"] or list(component)
        for start in starts[:50]:
            for after in inside.successors(start):
                path = networkx.shortest_path(inside, after, start)
                if best is None or len(path) < len(best):
                    best = path
    return best


def classify(graph: networkx.DiGraph, cycle: list[Point]) -> str:
    edges = [(a, b, edge_kind(graph, a, b)) for a, b in edges_of(cycle)]
    kinds = {kind for _, _, kind in edges} - {"po"}
    anti = [(a, b) for a, b, kind in edges if kind == "rw"]

    if "rt" in kinds:
        return "stale read" if anti else "time travel"
    if not anti:
        return "G0" if kinds == {"ww"} else "G1c"
    if len(anti) > 1:
        return "long fork"
    reader = anti[0][0]
    (entering,) = [kind for _, b, kind in edges if b == reader]
    if entering == "ww":
        return "lost update"
    return "torn statement" if graph.nodes[reader].get("statement") else "G-single"


def check(history: History) -> list[Anomaly]:
    judge = Judge(history)
    judge.check_ends()
    judge.check_reads()
    judge.report_cycles()
    return list(dict.fromkeys(judge.anomalies))
