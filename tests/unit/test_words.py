"""Retired words stay out: docs/glossary.md has the words to write in their place.

`GONE` has the words that are not used any more. `LEFT` and `LEFT_IN_NAMES` have the largest number of uses of those
that are still there; the numbers only sink. Lower them after a rename: `python -m tests.unit.test_words` prints the new
table.
"""

import ast
import functools
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.unit.parsed import nodes

ROOT = Path(__file__).resolve().parents[2]
READ = ("operator", "tools", "bench", "docs", "crds", "manifests", "examples", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".yaml", ".js", ".html", ".sh"}
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")

# Invented words: they stand nowhere, neither in names nor in text.
INVENTED = """
    ailment ailments asides crowd crowded crowds disowned doubt doubted doubtful ghost ghosts hoped knock knocks laid
    lineage mended mends newcomer newcomers outwaited overdrawn seat seats stranger strangers torn whoever whomever
    wish wished wishes
"""
GONE = frozenset(INVENTED.split())
LEFT = {"anybody": 10, "everybody": 14, "mend": 1, "nobody": 91, "somebody": 45, "whom": 11}

# Ordinary words: text may use them, names of functions, classes, modules and fields may not.
NO_NAMES = "aside books desk desks door nobody shut somebody standing telling tells turns who whom"
LEFT_IN_NAMES = {
    **dict.fromkeys(NO_NAMES.split(), 0),
    "anew": 1,
    "go": 4,
    "judge": 1,
    "judges": 1,
    "leave": 7,
    "left": 2,
    "look": 4,
    "looks": 2,
    "marker": 2,
    "take": 12,
    "tell": 8,
    "told": 7,
    "turn": 1,
    "whole": 4,
    "word": 1,
    "words": 13,
}

# Words that are no name by themselves: a function is a verb with its object.
LEFT_AS_NAMES = {"anew": 1, "by": 2, "look": 4, "of": 3, "on": 0, "put": 9, "take": 6, "told": 6, "whole": 2}
# Words that say nothing of what a variable or a parameter holds.
VAGUE = frozenset(
    {
        "again",
        "before",
        "begun",
        "each",
        "found",
        "gone",
        "here",
        "known",
        "mine",
        "never",
        "one",
        "said",
        "taken",
        "telling",
        "there",
        "told",
        "what",
        "whose",
    }
)
DEFINED = re.compile(r"^\s*(?:async )?def (\w+)|^class (\w+)|^    (\w+): ", re.MULTILINE)
SCHEMA_FIELD = re.compile(r"^ +(\w+):$", re.MULTILINE)
SLACK = 1.05  # a number further above its count than this is to be lowered


def texts() -> Iterator[tuple[Path, str]]:
    """The files that users and maintainers read, with their text."""
    listed = subprocess.run(["git", "ls-files", "-z", *READ], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in SUFFIXES and path.is_file():
            yield path, path.read_text()


def parts_of(name: str) -> set[str]:
    """The words of which a name consists: `GhostAges` and `ghost_ages` are of `ghost` and `ages`."""
    return {part.lower() for part in PART.findall(name)}


def names_in(path: Path, text: str) -> Iterator[str]:
    """The names that a file defines, its own included."""
    yield path.stem
    if path.suffix == ".py":
        yield from ("".join(found) for found in DEFINED.findall(text))
    elif path.parent.name == "crds":
        yield from SCHEMA_FIELD.findall(text)


class Uses(NamedTuple):
    """Uses by word anywhere, in names, and as names by themselves, and the files of each retired word."""

    anywhere: Counter[str]
    in_names: Counter[str]
    as_names: Counter[str]
    files: dict[str, Counter[str]]


@functools.cache
def counted() -> Uses:
    """The uses in all files; counted when a test asks for them, not when pytest collects."""
    anywhere: Counter[str] = Counter()
    in_names: Counter[str] = Counter()
    as_names: Counter[str] = Counter()
    files: dict[str, Counter[str]] = {word: Counter() for word in (*GONE, *LEFT, *LEFT_IN_NAMES)}
    for path, text in texts():
        here = Counter(part.lower() for part in PART.findall(text))
        names = list(names_in(path, text))
        named = Counter(part for name in names for part in parts_of(name))
        as_names.update(name.lstrip("_").lower() for name in names)
        anywhere.update(here)
        in_names.update(named)
        for word, uses in files.items():
            found = named[word] if word in LEFT_IN_NAMES else here[word]
            if found:
                uses[str(path.relative_to(ROOT))] = found
    return Uses(anywhere, in_names, as_names, files)


def table(limits: dict[str, int], uses: Counter[str]) -> dict[str, int]:
    """The limits as they would be now."""
    return {word: uses[word] for word in limits}


def test_no_retired_word_comes_back() -> None:
    limits, uses = {**dict.fromkeys(GONE, 0), **LEFT}, counted()
    more = {word: uses.files[word].most_common(20) for word, limit in limits.items() if uses.anywhere[word] > limit}
    assert more == {}, "write the word of docs/glossary.md"


def test_no_retired_word_comes_back_into_names() -> None:
    uses = counted()
    more = {w: uses.files[w].most_common(20) for w, limit in LEFT_IN_NAMES.items() if uses.in_names[w] > limit}
    assert more == {}, "write the word of docs/glossary.md, or a verb with its object"


def test_no_name_is_a_word_that_says_nothing() -> None:
    as_names = counted().as_names
    more = {word: as_names[word] for word, limit in LEFT_AS_NAMES.items() if as_names[word] > limit}
    assert more == {}, "write a verb with its object"


def vague_variables(source: str) -> list[tuple[int, str]]:
    """Lines and names of variables and parameters that are vague; fields of classes do not count."""
    fields = {
        id(statement.target)
        for owner in nodes(source)
        if isinstance(owner, ast.ClassDef)
        for statement in owner.body
        if isinstance(statement, ast.AnnAssign)
    }
    names = (
        (node.lineno, node.id if isinstance(node, ast.Name) else node.arg)
        for node in nodes(source)
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        if id(node) not in fields
    )
    return [(line, name) for line, name in names if name in VAGUE]


def test_no_variable_of_the_product_is_called_by_a_word_that_says_nothing() -> None:
    vague = {
        str(path.relative_to(ROOT)): found
        for path in sorted((ROOT / "operator").rglob("*.py"))
        if (found := vague_variables(path.read_text()))
    }
    assert vague == {}, "name what it holds"


def test_which_names_are_vague() -> None:
    source = "class A:\n    known: int\n\ndef f(told):\n    found = [each for each in told]\n    before, last = found\n"
    assert sorted(vague_variables(source)) == [(4, "told"), (5, "each"), (5, "found"), (6, "before")]


def test_the_table_sinks_with_the_words() -> None:
    """Room above a count is room for the word to come back; a word without uses belongs to GONE."""
    anywhere, in_names, as_names, _ = counted()
    for limits, uses in ((LEFT, anywhere), (LEFT_IN_NAMES, in_names), (LEFT_AS_NAMES, as_names)):
        slack = {word: limit for word, limit in limits.items() if limit > uses[word] * SLACK + 3}
        assert slack == {}, f"lower them to {table(slack, uses)}"
    assert sorted(word for word in LEFT if not anywhere[word]) == [], "move them to GONE"


def test_what_a_use_is() -> None:
    assert parts_of("GhostAges") == parts_of("_ghost_ages") == {"ghost", "ages"}
    assert parts_of("MAX_LAID") == {"max", "laid"}
    assert list(names_in(Path("a/look.py"), "class Look:\n    turn: int\n\n    def take(self) -> None:\n")) == [
        "look",
        "Look",
        "turn",
        "take",
    ]


if __name__ == "__main__":
    print("LEFT =", table(LEFT, counted().anywhere))
    print("LEFT_IN_NAMES =", table(LEFT_IN_NAMES, counted().in_names))
    print("LEFT_AS_NAMES =", table(LEFT_AS_NAMES, counted().as_names))
