"""A psql script as what psql makes of it: statements, meta commands, and the data of COPY.

What follows a statement can depend on what it did (the lines of COPY FROM STDIN), so a Script is read
item by item.  The rules are those of psqlscan.l: quotes, comments, parentheses, SQL-standard bodies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

VARIABLE = re.compile(r""":(?:'(\w+)'|"(\w+)"|\{\?(\w+)\}|(\w+))""")
META = re.compile(r"\\([A-Za-z_?!]+\+?S?\+?|.)")
DOLLAR = re.compile(r"\$([A-Za-z_\x80-\uffff][\w\x80-\uffff]*)?\$")
WORD = re.compile(r"[A-Za-z_\x80-\uffff][\w$\x80-\uffff]*")
ARGUMENT = re.compile(r"""(?:'(?:[^'\\]|\\.|'')*'|"[^"]*"|`[^`]*`|[^\s'"`\\])+""")

# what sends the statement in front of it
SENDERS = frozenset({"g", "gx", "gset", "gexec", "gdesc", "crosstabview"})
WHOLE_LINE = frozenset({"copy", "!", "echo", "warn", "qecho", "prompt"})
BODY = re.compile("c(or)?[fp]")  # the first letters of CREATE [OR REPLACE] FUNCTION or PROCEDURE


@dataclass(frozen=True)
class Part:
    """A piece of a statement: text as it is, or the name of a variable and how it is quoted."""

    text: str
    variable: str | None = None
    quote: str = ""


@dataclass(frozen=True)
class Statement:
    parts: tuple[Part, ...]
    line: int
    sender: str = ";"
    arguments: str = ""
    several: bool = False  # statements in one message, which are one implicit transaction

    def text(self, variables: dict[str, str]) -> str:
        return "".join(substitute(part, variables) for part in self.parts).strip()


@dataclass(frozen=True)
class Meta:
    name: str
    arguments: str
    line: int


def substitute(part: Part, variables: dict[str, str]) -> str:
    if part.variable is None:
        return part.text
    if part.quote == "?":
        return "TRUE" if part.variable in variables else "FALSE"
    value = variables.get(part.variable)
    if value is None:
        return part.text
    if part.quote:
        return part.quote + value.replace(part.quote, part.quote * 2) + part.quote
    return value


def variable_part(match: re.Match) -> Part:
    literal, identifier, defined, plain = match.groups()
    name = literal or identifier or defined or plain
    quote = "'" if literal else '"' if identifier else "?" if defined else ""
    return Part(match[0], name, quote)


def interpolate(text: str, variables: dict[str, str]) -> str:
    return VARIABLE.sub(lambda match: substitute(variable_part(match), variables), text)


def split_arguments(text: str, variables: dict[str, str]) -> list[str]:
    """The arguments of a meta command, with variables replaced and quotes removed."""
    return [unquote(match[0], variables) for match in ARGUMENT.finditer(text)]


def unquote(word: str, variables: dict[str, str]) -> str:
    pieces = re.findall(r"""'(?:[^'\\]|\\.|'')*'|"[^"]*"|:'\w+'|:"\w+"|[^'":]+|:""", word)
    out = []
    rest = ""
    for piece in pieces:
        if piece.startswith("'"):
            out.append(interpolate(rest, variables))
            rest = ""
            body = piece[1:-1].replace("''", "'")
            out.append(re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), body))
        else:
            rest += piece
    out.append(interpolate(rest, variables))
    return "".join(out)


class Script:
    """Reads a script; `position` may be put back."""

    def __init__(self, text: str):
        self.source = text
        self.position = 0

    def __iter__(self) -> Iterator[Statement | Meta]:
        while (item := self.next()) is not None:
            yield item

    def line_of(self, position: int) -> int:
        return self.source.count("\n", 0, position) + 1

    def copy_data(self) -> bytes:
        """The lines up to one that is only a backslash and a point."""
        end = re.compile(r"^\\\.$\n?", re.MULTILINE)
        start = self.source.find("\n", self.position) + 1
        match = end.search(self.source, start)
        stop, self.position = (match.start(), match.end()) if match else (len(self.source),) * 2
        return self.source[start:stop].encode()

    def next(self) -> Statement | Meta | None:
        lexer = Lexer(self)
        return lexer.read()


class Lexer:
    """Reads one item."""

    def __init__(self, script: Script):
        self.script = script
        self.source = script.source
        self.start = script.position
        self.parts: list[Part] = []
        self.literal = ""
        self.parentheses = 0
        self.begins = 0
        self.words = ""
        self.several = False

    def read(self) -> Statement | Meta | None:
        position = self.start
        while position < len(self.source):
            letter = self.source[position]
            if letter == ";" and self.parentheses == 0 and self.begins == 0:
                position += 1
                if not self.empty():
                    return self.finish(position)
                self.literal = ""
            elif letter == "\\" and self.source[position + 1 : position + 2] == ";":
                self.literal += ";"
                self.several = True
                position += 2
            elif letter == "\\":
                item, position = self.read_meta(position)
                if item is not None:
                    return item
            else:
                position = self.read_token(position)
        self.script.position = position
        return None if self.empty() else self.finish(position)

    def empty(self) -> bool:
        text = self.literal + "".join(part.text for part in self.parts)
        return not strip_comments(text).strip()

    def finish(self, position: int, sender: str = ";", arguments: str = "") -> Statement:
        self.script.position = position
        first = len(self.source[self.start :]) - len(self.source[self.start :].lstrip())
        return Statement(
            (*self.parts, Part(self.literal)),
            self.script.line_of(self.start + first),
            sender,
            arguments,
            self.several,
        )

    def read_meta(self, position: int) -> tuple[Statement | Meta | None, int]:
        """A statement that the command sends, a command by itself, or one amid a statement, which is lost."""
        match = META.match(self.source, position)
        if match is None:
            return None, position + 1
        name, begin = match[1], match.end()
        end = self.end_of_arguments(begin, name)
        arguments = self.source[begin:end].strip()
        if name in SENDERS and not self.empty():
            return self.finish(end, name, arguments), end
        if name in ("r", "reset"):
            self.literal, self.parts = "", []
            return None, end
        if self.empty():
            self.script.position = end
            return Meta(name, arguments, self.script.line_of(position)), end
        if name in ("if", "elif", "else", "endif"):  # amid a statement: not supported
            raise ValueError(f"line {self.script.line_of(position)}: \\{name} amid a statement")
        return None, end

    def end_of_arguments(self, position: int, name: str) -> int:
        newline = self.source.find("\n", position)
        newline = len(self.source) if newline < 0 else newline
        if name in WHOLE_LINE:
            return newline
        quote = ""
        for at in range(position, newline):
            letter = self.source[at]
            if quote:
                quote = "" if letter == quote and self.source[at - 1] != "\\" else quote
            elif letter in "'\"`":
                quote = letter
            elif letter == "\\":
                return at + 2 if self.source[at + 1 : at + 2] == "\\" else at
        return newline

    def take(self, position: int, end: int) -> int:
        self.literal += self.source[position:end]
        return end

    def read_token(self, position: int) -> int:
        source = self.source
        letter = source[position]
        two = source[position : position + 2]
        if two == "--":
            end = source.find("\n", position)
            return self.take(position, len(source) if end < 0 else end)
        if two == "/*":
            return self.take(position, end_of_comment(source, position))
        if letter in "'\"":
            escapes = letter == "'" and self.literal[-1:] in "eE" and bool(self.literal)
            if (
                escapes
                and len(self.literal) > 1
                and (self.literal[-2].isalnum() or self.literal[-2] == "_")
            ):
                escapes = False
            return self.take(position, end_of_quoted(source, position, letter, escapes))
        if letter == "$" and not re.match(r"[\w$]", self.literal[-1:]):
            match = DOLLAR.match(source, position)
            if match:
                end = source.find(match[0], match.end())
                return self.take(position, len(source) if end < 0 else end + len(match[0]))
        if letter == ":":
            return self.read_colon(position)
        if letter in "()":
            self.parentheses = max(self.parentheses + (1 if letter == "(" else -1), 0)
            return self.take(position, position + 1)
        match = WORD.match(source, position)
        if match and not re.match(r"[\w$]", self.literal[-1:]):
            self.count_word(match[0].lower())
            return self.take(position, match.end())
        return self.take(position, position + 1)

    def read_colon(self, position: int) -> int:
        if self.source[position : position + 2] in ("::", ":="):
            return self.take(position, position + 2)
        match = VARIABLE.match(self.source, position)
        if match is None:
            return self.take(position, position + 1)
        self.parts += [Part(self.literal), variable_part(match)]
        self.literal = ""
        return match.end()

    def count_word(self, word: str) -> None:
        """Semicolons within BEGIN ATOMIC ... END of a function do not end the statement."""
        if len(self.words) < 4:
            known = word in ("create", "function", "procedure", "or", "replace")
            self.words += word[0] if known else "-"
        if self.parentheses == 0 and BODY.match(self.words):
            if word == "begin" or (word == "case" and self.begins):
                self.begins += 1
            elif word == "end" and self.begins:
                self.begins -= 1


def end_of_comment(source: str, position: int) -> int:
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(source, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(source)


def end_of_quoted(source: str, position: int, quote: str, escapes: bool) -> int:
    at = position + 1
    while at < len(source):
        if escapes and source[at] == "\\":
            at += 2
        elif source[at] == quote:
            if source[at + 1 : at + 2] != quote:
                return at + 1
            at += 2
        else:
            at += 1
    return len(source)


def strip_comments(text: str) -> str:
    return re.sub(r"--[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
