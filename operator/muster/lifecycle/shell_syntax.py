"""Parse a shell's line into its lists, pipelines and groups, as far as exit codes need them. Pure.

The words come from `muster.protocol.shell_words`. What this does not know (functions, `case`, arithmetic) makes the
whole line unclear, and so does what is nested deeply. Source: POSIX.1-2017, Shell Command Language, section 2.9.

Tests: tests/unit/lifecycle/test_exit_codes.py.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, islice, takewhile

from muster.protocol.shell_words import clauses, resolved_each

_OPERATOR = re.compile(r"&&|\|\||\|&|;;|\(\(|[;&|()\n]")
_REDIRECTION = re.compile(r"\d*(?:[<>]|&>)|-$")
_OPENING = frozenset(("if", "then", "elif", "else", "while", "until", "do", "{", "!", "time"))
_CLOSING = frozenset(("fi", "done", "}"))
_UNKNOWN = frozenset(("case", "esac", "function", "coproc"))
_ENDS = frozenset((";", "\n"))
_PROCESS = "<("
_END = ""
_MOST_NESTED = 16
_MOST_COMMANDS = 1024  # and empty lines


class UnclearError(Exception):
    """The line has something that is not understood."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One command with its words."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Commands in braces, or in parentheses, which another shell runs."""

    body: "Commands"
    is_subshell: bool


@dataclass(frozen=True, slots=True)
class If:
    """Conditions, each with what it runs, and what runs where none is met."""

    branches: "tuple[tuple[Commands, Commands], ...]"
    otherwise: "Commands"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of any kind, with the commands in its condition and its body."""

    body: "Commands"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands of which each reads what the one before prints; often it is one alone."""

    parts: "tuple[Simple | Group | If | Loop, ...]"
    is_negated: bool


@dataclass(frozen=True, slots=True)
class AndOr:
    """Pipelines of which each but the first runs where the status before is good (`&&`) or bad (`||`)."""

    first: Pipeline
    rest: tuple[tuple[str, Pipeline], ...]
    in_background: bool


Commands = tuple[AndOr, ...]


def parse(line: str) -> Commands:
    """Return the commands of a line.

    Raises:
        UnclearError: it is not understood.
    """
    parser = _Parser(list(_tokens(line)))
    found = parser.commands(frozenset((_END,)))
    parser.consume(_END)
    return found


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # an operator, a reserved word, "word"
    argv: tuple[str, ...] = ()


def _tokens(line: str) -> Iterator[_Token]:
    listed = list(islice(clauses(line), _MOST_COMMANDS + 1))
    if len(listed) > _MOST_COMMANDS:
        raise UnclearError
    for known, (words, operators) in zip(resolved_each(words for words, _ in listed), listed, strict=True):
        rest = words if "$?" in known else known  # what it was when it was kept in a variable
        for opening in takewhile(_OPENING.__contains__, rest):
            if opening != "time":
                yield _Token(opening)
        rest = tuple(dropwhile(_OPENING.__contains__, rest))
        if rest and rest[0] in _UNKNOWN:
            raise UnclearError
        if rest and rest[0] in _CLOSING:
            yield _Token(rest[0])
            _redirected(rest[1:])
        elif rest and rest[0] in ("for", "select"):
            yield _Token("for")
        elif rest:
            yield _Token("word", rest)
        for place, operator in enumerate(_OPERATOR.findall(operators)):
            if operator == "(" and place == 0 and rest:
                if not rest[-1].endswith(("<", ">")):
                    raise UnclearError  # a function, a pattern, a substitution that is nested deeply
                operator = _PROCESS
            yield _Token(operator)
    yield _Token(_END)


def _redirected(words: Sequence[str]) -> None:
    """Refuse words behind a group that are no redirections with their files."""
    is_file = False
    for word in words:
        if not is_file and not _REDIRECTION.match(word):
            raise UnclearError
        is_file = not is_file and word.endswith(("<", ">", ">>", ">|"))


class _Parser:
    def __init__(self, tokens: Sequence[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def _kind(self) -> str:
        return self._tokens[self._at].kind

    def consume(self, kind: str) -> _Token:
        """Go on to the next token.

        Raises:
            UnclearError: this one is of another kind.
        """
        token = self._tokens[self._at]
        if token.kind != kind:
            raise UnclearError
        self._at += 1
        return token

    def _skip(self, kinds: frozenset[str]) -> None:
        while self._kind() in kinds:
            self._at += 1

    def commands(self, until: frozenset[str]) -> Commands:
        """Return the commands up to one of these tokens, which is not taken."""
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise UnclearError
        found: list[AndOr] = []
        self._skip(_ENDS)
        while self._kind() not in until:
            found.append(self._and_or())
            if self._kind() in _ENDS or self._kind() == "&":
                self._at += 1
            elif self._kind() not in until:
                raise UnclearError
            self._skip(_ENDS)
        self._depth -= 1
        return tuple(found)

    def _and_or(self) -> AndOr:
        first, rest = self._pipeline(), []
        while self._kind() in ("&&", "||"):
            operator = self.consume(self._kind()).kind
            self._skip(_ENDS)
            rest.append((operator, self._pipeline()))
        return AndOr(first, tuple(rest), in_background=self._kind() == "&")

    def _pipeline(self) -> Pipeline:
        is_negated = False
        while self._kind() == "!":
            is_negated = not is_negated
            self._at += 1
        parts = [self._command()]
        while self._kind() in ("|", "|&"):
            self._at += 1
            self._skip(_ENDS)
            parts.append(self._command())
        return Pipeline(tuple(parts), is_negated)

    def _command(self) -> Simple | Group | If | Loop:
        kind = self._kind()
        if kind == "word":
            return self._simple()
        self.consume(kind)
        if kind == "(":
            body = self._until(")")
            if self._kind() == "word":
                _redirected(self.consume("word").argv)
            return Group(body, is_subshell=True)
        if kind == "{":
            return Group(self._until("}"), is_subshell=False)
        if kind == "if":
            return self._if()
        if kind in ("while", "until"):
            condition = self._until("do")
            return Loop(condition + self._until("done"))
        if kind == "for":
            self._skip(_ENDS)
            self.consume("do")
            return Loop(self._until("done"))
        raise UnclearError

    def _until(self, kind: str) -> Commands:
        found = self.commands(frozenset((kind,)))
        self.consume(kind)
        return found

    def _simple(self) -> Simple:
        words: list[str] = []
        while self._kind() in ("word", _PROCESS):
            if self._kind() == "word":
                words += self.consume("word").argv
            else:
                self.consume(_PROCESS)
                self._until(")")  # nothing waits for it
        return Simple(tuple(words))

    def _if(self) -> If:
        branches: list[tuple[Commands, Commands]] = []
        otherwise: Commands = ()
        kind = "if"
        while kind in ("if", "elif"):
            condition = self._until("then")
            branches.append((condition, self.commands(frozenset(("elif", "else", "fi")))))
            kind = self.consume(self._kind()).kind
        if kind == "else":
            otherwise = self._until("fi")
        return If(tuple(branches), otherwise)
