"""Parse the commands of a shell's line without running any: words, quotation, comments, here-documents (`<<EOF`).

It reads on where a shell would not: an unclosed quotation mark is a letter. It reads each part of the text a bounded
number of times, since lines come from users, and are read where jobs are decided. Anything but plain commands is
skipped word by word. Source: POSIX.1-2017, Shell Command Language, sections 2.2, 2.3 and 2.7.4.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Iterator, List, Match, NamedTuple, Optional, Sequence, Tuple

SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh"))
_MOST_DOCUMENTS = 16  # each search may go through all that follows
# What is resolved at the start, and what another command prints.
_RESOLVED = r"\$\$?\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
_RESOLVED_OF_OLD = "`[^`]*`"
TOKEN = re.compile(
    r"(?P<blank>[ \t\r\f\v]+)|(?P<joint>\\\n)|(?P<line>\n)"
    r"|(?P<document><<(?P<tabs>-?)[ "
    r"\t]*(?:'(?P<single_end>[^'\n]+)'|\"(?P<double_end>[^\"\n]+)\"|\\?(?P<plain_end>[\w.!@%+/-]+)))"
    r"|(?P<redirection><<<|[<>]&|&>|[<>]\||[<>])|(?P<end>[;&|()]+)"
    r"|'(?P<single>[^']*)'|\$'(?P<escaped>(?:[^'\\]|\\.)*)'"
    rf'|"(?P<double>(?:[^"\\$]|\\.|{_RESOLVED}|\$(?!\$?\())*)"|"(?P<simple>(?:[^"\\]|\\.)*)"'
    rf"|(?P<resolved>{_RESOLVED}|{_RESOLVED_OF_OLD})|\\(?P<letter>.)"
    r"""|(?P<plain>[^\s\\'"$;&|()<>#`]+|.)""",
    re.DOTALL,
)
SUBSTITUTION = re.compile(f"{_RESOLVED}|{_RESOLVED_OF_OLD}")
_ESCAPE = re.compile(r'\\(?:\n|([$`"\\]))')  # within double quotation marks
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_SETTING = frozenset(("export", "declare", "local", "readonly", "typeset"))
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?:\[[@*]\])?\})", re.ASCII)
_LONGEST_VALUE = 1024
_MOST_VARIABLES = 64  # in one word
_MOST_ADDED = 65_536  # characters, in all words together


def commands(line: str) -> Iterator[Tuple[str, ...]]:
    """Yield the words of each command; `$_` replaces what is resolved only when it runs."""
    return (words for words, _ in clauses(line) if words)


class Clause(NamedTuple):
    """A command of a line.

    Attributes:
        argv: the words of the command; none where two operators follow each other.
        operators: behind it: a line end, or such as `|`.
        spans: where each word begins and ends in the line.
        end: where the operators begin.
    """

    argv: Tuple[str, ...]
    operators: str
    spans: Tuple[Tuple[int, int], ...]
    end: int


def clauses(line: str) -> Iterator[Tuple[Tuple[str, ...], str]]:
    """Yield the words of each command, which may be none, and the operators behind it: a line end, or such as `|`."""
    return ((clause.argv, clause.operators) for clause in placed_clauses(line))


def placed_clauses(line: str) -> Iterator[Clause]:
    """Yield each command with the places of its words."""
    place, searches = 0, 0
    words: List[str] = []
    spans: List[Tuple[int, int]] = []
    word: Optional[str] = None  # the part of a word that has been read
    begin = 0  # of that word
    ends: List[int] = []  # of the documents that begin behind this line
    in_array = False  # within A=(…), whose words make one value
    while place < len(line):
        match = TOKEN.match(line, place)
        if match is None:
            return
        kind, place = match.lastgroup or "", match.end()
        begin = match.start() if word is None else begin
        if kind in ("single", "escaped", "letter", "resolved", "double", "simple"):
            word = (word or "") + _meant(kind, match.group(kind))
            continue
        if kind == "plain" and match.group() == "#" and (word is None or (in_array and word[-1] in "= ")):
            place = _next_line(line, place)
            continue
        if in_array and kind in ("blank", "joint", "line"):
            word = (word or "") + " "
            continue
        if match.group() == "(" and word is not None and ASSIGNMENT.fullmatch(word):
            in_array = True
            continue
        if kind in ("plain", "redirection"):
            word = (word or "") + match.group()
            continue
        if kind == "joint":
            continue
        in_array = False
        if word is not None:
            words.append(word)
            spans.append((begin, match.start()))
            word = None
        if kind == "document":
            searches += 1
            end = _end(line, place, match) if searches <= _MOST_DOCUMENTS else None
            ends += [end] if end is not None else []
        elif kind in ("line", "end"):
            if kind == "line" and ends:
                place = place if _reads_commands(words) else max(place, *ends)
                ends = []
            yield Clause(tuple(words), match.group(), tuple(spans), match.start())
            words, spans = [], []
    if word is not None:
        words.append(word)
        spans.append((begin, len(line)))
    yield Clause(tuple(words), "", tuple(spans), len(line))


def resolved(unresolved: Iterable[Tuple[str, ...]]) -> Iterator[Tuple[str, ...]]:
    """Yield each command with the values of those variables that the line sets to one text each; others stay."""
    listed = list(unresolved)
    values: Dict[str, Optional[str]] = {}
    for words in listed:
        for word in _assignments(words):
            name, more, value = _assigned(word)
            value = _with(values, value)
            previous_value = values.get(name, "" if more else None)
            if more:
                value = "%s%s" % (previous_value, value) if previous_value is not None else ""
            elif name in values and previous_value != value:
                value = ""  # one of several: which one is unknown
            values[name] = value if 0 < len(value) <= _LONGEST_VALUE else None
    room = _MOST_ADDED
    for words in listed:
        meant: List[str] = []
        for word in words:
            parts = _parts(values, word) if room > 0 else [word]
            room -= max(0, sum(map(len, parts)) - len(word))
            meant += parts
        yield tuple(meant)


def _assignments(words: Sequence[str]) -> Sequence[str]:
    """Return the assignments of a command that does nothing else."""
    is_setting = bool(words) and words[0] in _SETTING
    rest = [word for word in words[1:] if not word.startswith("-")] if is_setting else words
    return rest if all(ASSIGNMENT.match(word) for word in rest) else ()


def _assigned(word: str) -> Tuple[str, str, str]:
    name, _, value = word.partition("=")
    return (name[:-1], "+", value) if name.endswith("+") else (name, "", value)


def _parts(values: Dict[str, Optional[str]], word: str) -> List[str]:
    """Return the words that one word expands to."""
    if "$" not in word or ASSIGNMENT.match(word):
        return [word]
    meant = _with(values, word)
    return [word] if meant == word else meant.split()


def _with(values: Dict[str, Optional[str]], text: str) -> str:
    def value(match: "Match[str]") -> str:
        variable_value = values.get(match.group(1) or match.group(2))
        return match.group() if variable_value is None else variable_value

    return _VARIABLE.sub(value, text, count=_MOST_VARIABLES)


def _meant(kind: str, text: str) -> str:
    if kind == "resolved":
        return "$_"
    if kind in ("double", "simple"):
        return _ESCAPE.sub(lambda match: match.group(1) or "", SUBSTITUTION.sub("$_", text))
    return text


def _next_line(line: str, place: int) -> int:
    end = line.find("\n", place)
    return end if end >= 0 else len(line)


def _end(line: str, place: int, match: "re.Match[str]") -> Optional[int]:
    """Return where the document that was announced at a place ends; None: nowhere, so it is none."""
    name = match.group("single_end") or match.group("double_end") or match.group("plain_end")
    indent = r"\t*" if match.group("tabs") else ""
    end = re.compile("^%s%s$" % (indent, re.escape(name)), re.MULTILINE).search(line, _next_line(line, place))
    return end.end() if end else None


def _reads_commands(words: Sequence[str]) -> bool:
    """Whether the command is a shell that reads its commands from the document."""
    is_shell = bool(words) and words[0].rsplit("/", 1)[-1] in SHELLS
    return is_shell and all(word.startswith("-") for word in words[1:])
