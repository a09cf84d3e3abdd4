"""Find shell lines in which the exit code of the program that trains is lost, as in `python3 train.py | tee log`. Pure.

The code is followed from the program on to the end of the line. Where it surely gives way to another, Muster would take
each failure for success. What is unclear gives no warning: functions, `case`, loops around the program, `$?`, groups
and other programs behind it. Source: POSIX.1-2017, Shell Command Language, sections 2.8.2, 2.9 and 2.14, and bash's
manual on `pipefail`.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal

from muster.protocol.shell_words import SHELLS, clauses, resolved
from muster.protocol.starters import LONGEST_LINE, shell_at, shell_line, started_in_shell, without_prefix

_KEPT_LINES = 4096  # as many jobs may have one each, and are parsed again and again
_MOST_COMMANDS = 1024  # and empty lines
_LONGEST_NAME = 64
_TRAINS = re.compile(r"train|tun(?:e|ing)", re.IGNORECASE)
# What follows a program without a word on its outcome, and what is no program that trains either.
_HARMLESS = re.compile(
    r"exit 0|wait|(?:python[\d.]* -m |uv )?pip3? .*|(?:conda|mamba) (?:de)?activate.*|grep (?:--line-buffered )?-v.*"
    r"|(?::|\.|source|echo|printf|true|tee|cat|date|sleep|touch|ls|cp|mv|rm|ln|mkdir|rsync|aws|gsutil|gcloud|s3cmd"
    r"|rclone|sync|chmod|chown|tar|gzip|zip|unzip|curl|wget|nvidia-smi|tail|head|df|du|free|hostname|pwd|cd|pushd|popd"
    r"|export|declare|local|readonly|typeset|unset|ulimit|umask|set|setopt|shopt|read|sed|cut|tr|ts|sort|uniq|logger|pv"
    r"|less|more|module|apt-get|apk|git|deactivate|whoami|id|uname)(?: .*)?",
    re.DOTALL,
)
_NO_PROGRAM = re.compile(r"\[|\[\[|test|exit|false|trap|kill|wait|shift|\d*[<>&].*", re.DOTALL)
_LOOKS = re.compile(r"\$\{?\?|PIPESTATUS|pipestatus")

_OPERATOR = re.compile(r"&&|\|\||\|&|;;|\(\(|[;&|()\n]")
_PIPES = frozenset(("|", "|&"))
_LIST = frozenset((";", "&", "&&", "||"))
_OPENING = frozenset(("if", "while", "until", "for", "{", "("))
_CLOSING = frozenset(("fi", "done", "}", ")"))
_PARTS = frozenset(("then", "elif", "else", "do"))
_RESERVED = _PARTS | _OPENING | _CLOSING | {"!"}
_UNKNOWN = frozenset(("case", "esac", "function", "coproc", "select", ";;", "(("))

Shape = Literal["pipe", "or", "sequence", "background", "if", "not", "trap"]


@dataclass(frozen=True, slots=True)
class Hidden:
    """An exit code that is lost.

    Attributes:
        program: whose code it is.
        shape: by what it is lost.
        last_command: the one whose code counts; "": none.
        options: of `set`, which help; "": none do.
        needs_more: whether the options alone do not help.
        shell: that runs the line.
    """

    program: str
    shape: Shape
    last_command: str = ""
    options: str = ""
    needs_more: bool = False
    shell: str = ""


def hidden_exit_code(command: Sequence[str]) -> Hidden | None:
    """Return the exit code that the shell's line of a command loses; None: none that is surely lost."""
    line, place = shell_line(command), shell_at(command)
    if not line or place is None or len(line) > LONGEST_LINE:
        return None
    options = _options(("set", *command[place + 1 : command.index(line, place)]))
    return _hidden(line, options, command[place].rsplit("/", 1)[-1])


def message(hidden: Hidden) -> str:
    """Return what people should know of an exit code that is lost, and the way to keep it."""
    lost = _LOST[hidden.shape].format(program=hidden.program, last=hidden.last_command)
    follows = f"each failure of {hidden.program} counts as success, so that the job would be Succeeded and nothing"
    return f"{lost}: {follows} would be restarted. {_remedy(hidden)}"


_LOST: Mapping[Shape, str] = {
    "pipe": "the shell's line pipes {program} into {last}, and goes on with the exit code of {last}",
    "or": "`|| {last}` behind {program} in the shell's line takes the place of its exit code",
    "sequence": "`{last}` runs behind {program} in the shell's line, and its exit code takes the other's place",
    "background": "the shell's line starts {program} in the background (&), and does not end with its exit code",
    "if": "the shell's line starts {program} as the condition of an `if`, and does not end with its exit code",
    "not": "`!` before {program} in the shell's line turns its exit code round",
    "trap": "a trap in the shell's line ends the shell with code 0 also where {program} fails",
}
_REMEDIES: Mapping[Shape, str] = {
    "or": "Take `|| {last}` out, or write `|| exit 1`",
    "sequence": "Let the line end with {program}, or write `|| exit 1` behind it",
    "background": "Take the `&` out, or put `pid=$!` behind it and let the line end with `wait $pid`",
    "if": "Let the branch for a failure end with `exit 1`",
    "not": "Take the `!` out",
    "trap": "Take `exit 0` out of the trap",
}


def _remedy(hidden: Hidden) -> str:
    more = _REMEDIES.get(hidden.shape, "").format(program=hidden.program, last=hidden.last_command)
    if not hidden.options:
        return more
    if "pipefail" in hidden.options and hidden.shell not in ("bash", "zsh"):
        less = f"start the line with `bash {hidden.options} -c`: not every {hidden.shell} knows pipefail"
    else:
        less = f"put `set {hidden.options};` in front of the line"
    return f"{more}, and {less}" if hidden.needs_more else less[0].upper() + less[1:]


_Options = frozenset[str]
_REMEDY_OPTIONS = ("-o pipefail", "-e", "-eo pipefail")  # the least that helps first


def _options(words: Sequence[str]) -> _Options:
    """Return what a command puts in force of the two options that matter. None is put out of force: that is rare."""
    if not words or words[0] not in ("set", "shopt", "setopt"):
        return _Options()
    has_letter = words[0] == "set" and any(re.match(r"-[a-zA-Z]*e", word) for word in words)
    return _Options({"errexit", "pipefail"}.intersection(words) | ({"errexit"} if has_letter else set()))


class _UnclearError(Exception):
    """The line has something that is not understood."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # an operator, a reserved word, "word": a command, "": the end
    argv: tuple[str, ...] = ()

    @property
    def program(self) -> Sequence[str]:
        return without_prefix(self.argv)


@lru_cache(maxsize=_KEPT_LINES)
def _hidden(line: str, options: _Options, shell: str) -> Hidden | None:
    try:
        tokens = _tokens(line)
        lost = _lost(tokens, options)
    except _UnclearError:
        return None
    if lost is None:
        return None
    rest = lost
    for text in _REMEDY_OPTIONS:
        with suppress(_UnclearError):
            after = _lost(tokens, options | _options(("set", *text.split())))
            if after is None:
                return replace(lost, options=text, shell=shell)
            rest = after if text == "-o pipefail" else rest
    if lost.shape != "pipe":
        return lost
    return replace(rest, options="-o pipefail", needs_more=rest.shape != "pipe", shell=shell)


def _tokens(line: str) -> list[_Token]:
    listed = list(islice(clauses(line), _MOST_COMMANDS + 1))
    if len(listed) > _MOST_COMMANDS or _LOOKS.search(line):
        raise _UnclearError
    tokens = [_Token(";")]
    for words, (_, operators) in zip(resolved(words for words, _ in listed), listed, strict=True):
        place = 0
        while place < len(words) and words[place] in _RESERVED:
            tokens.append(_Token(words[place]))
            # Redirections follow the end of a group, and names and values a `for`.
            place = len(words) if words[place] in _CLOSING or words[place] == "for" else place + 1
        if place < len(words) and tokens[-1].kind != ")":
            tokens.append(_Token("word", words[place:]))
        for operator in _OPERATOR.findall(operators.replace("\n", ";")):
            if operator == "(" and tokens[-1].kind == "word":
                raise _UnclearError  # a function, a pattern, a process substitution
            if operator != ";" or tokens[-1].kind == "word" or tokens[-1].kind in _CLOSING:
                tokens.append(_Token(operator))
    tokens.append(_Token(""))
    _refuse_unclear(tokens)
    return tokens


def _refuse_unclear(tokens: Sequence[_Token]) -> None:
    depth = 0
    for token, following in pairwise(tokens):
        program = token.program
        depth += (token.kind in _OPENING) - (token.kind in _CLOSING)
        is_fed = bool(program) and _name(program[0]) in SHELLS and all(word.startswith("-") for word in program[1:])
        if is_fed or not _UNKNOWN.isdisjoint((token.kind, *program[:1])) or depth < 0 or (depth and not following.kind):
            raise _UnclearError


def _name(word: str) -> str:
    return word.rsplit("/", 1)[-1][:_LONGEST_NAME]


def _called(words: Sequence[str]) -> str:
    """Return the script or module that a command runs, or else its program."""
    for word, following in pairwise([*words, ""]):
        if word.endswith((".py", ".sh")) and not word.startswith("-"):
            return _name(word)
        if word in ("-m", "--module") and following:
            return _name(following)
    return _name(words[0])


def _is_harmless(words: Sequence[str]) -> bool:
    return not words or _HARMLESS.fullmatch(" ".join((_name(words[0]), *words[1:4]))) is not None


def _trainers(tokens: Sequence[_Token]) -> list[int]:
    """Return where programs train: those that start processes, or are named so, or the only one of the line."""
    programs = [
        place
        for place, token in enumerate(tokens)
        if not _is_harmless(token.program) and not _NO_PROGRAM.fullmatch(_name(token.program[0]))
    ]
    starting = [place for place in programs if started_in_shell(tokens[place].argv)]
    named = [place for place in programs if _TRAINS.search(_called(tokens[place].program))]
    return starting or named or (programs if len(programs) == 1 else [])


def _label(words: Sequence[str]) -> str:
    """Return a short name of a command that is harmless, for people."""
    if not words:
        return "an assignment"
    return "exit 0" if words[0] == "exit" else _name(words[0])


def _next(tokens: Sequence[_Token], place: int, kinds: frozenset[str]) -> int:
    """Return the place of the next token of these kinds that is in no further group, or of the end of this group."""
    depth, ends = 0, kinds | _CLOSING | {""}
    while depth or tokens[place].kind not in ends:
        depth += (tokens[place].kind in _OPENING) - (tokens[place].kind in _CLOSING)
        place += 1
    return place


def _lost(tokens: Sequence[_Token], options: _Options) -> Hidden | None:
    """Return by what the exit code is lost where the programs that train fail; None: it is kept."""
    trainers = _trainers(tokens)
    if not trainers:
        return None
    traps = [token.program for token in tokens if token.program[:1] == ("trap",)]
    if traps:
        first = tokens[trainers[0]]
        if traps != [("trap", "exit 0", "EXIT")] or tokens[1].program != traps[0] or "exec" in first.argv:
            raise _UnclearError
        return Hidden(_called(first.program), "trap")
    options |= {name for token in tokens[: trainers[-1]] for name in _options(token.program)}
    groups: list[str] = []
    is_negated = False
    for token in tokens[: trainers[0]]:
        if token.kind in _OPENING:
            if is_negated:
                raise _UnclearError
            groups.append(token.kind)
        elif token.kind in _CLOSING:
            groups.pop()
        elif groups and token.kind in _PARTS:
            groups[-1] = token.kind
        is_negated = token.kind == "!" or (is_negated and (token.kind == "word" or token.kind in _PIPES))
    if groups not in ([], ["("], ["{"], ["if"]):
        raise _UnclearError
    return _lost_behind(tokens, trainers, options, "".join(groups), is_negated=is_negated)


def _lost_behind(
    tokens: Sequence[_Token], trainers: Sequence[int], options: _Options, within: str, *, is_negated: bool
) -> Hidden | None:
    """Follow the exit code of a program that fails from there to the end of the line.

    Where another took its place, only harmless commands may follow: the shell ends with their 0, as far as is known.

    Args:
        tokens: of the line.
        trainers: the places of such programs; they all fail.
        options: of the shell.
        within: the group, or the part of an `if`, that the first of them is in; "": none.
        is_negated: whether a `!` precedes it.
    """
    place, program, loss = trainers[0], "", None
    is_tested = False  # by an `&&` behind it: `set -e` does not count
    while True:
        token, kind = tokens[place], tokens[place].kind
        place += 1
        if kind == "word":
            if place - 1 in trainers:
                is_replaced = not {"exec", "eval"}.isdisjoint(token.argv[: len(token.argv) - len(token.program)])
                if is_replaced and tokens[place].kind not in _PIPES:
                    raise _UnclearError
                program, loss, is_tested = _called(token.program), None, False
            elif not _is_harmless(token.program):
                is_next = tokens[place - 2].kind == ";" and _called(token.program).endswith(".py")
                if not is_next or not started_in_shell(tokens[trainers[0]].argv):
                    raise _UnclearError  # it may be the one that trains, or look at what the other did
            continue
        if kind in _PIPES:
            if is_negated:
                raise _UnclearError  # the line ends with a failure, whatever the program does
            end = _next(tokens, place, _PIPES | _LIST)
            if loss is None and (tokens[end].kind in _PIPES or "pipefail" in options):
                place = end
            else:
                loss = loss or Hidden(program, "pipe", _label(tokens[place].program))
            continue
        if is_negated:
            loss, is_negated = Hidden(program, "not"), False
        if not kind:
            return loss
        if kind == ("&&" if loss is None else "||"):
            is_tested = True
            place = _next(tokens, place, _LIST)
        elif kind == "||":
            loss = Hidden(program, "or", _label(tokens[place].program))
        elif kind == "&":
            loss = loss or Hidden(program, "background")
        elif kind == ";":
            if loss is not None or tokens[place].kind in _CLOSING | _PARTS | {""}:
                continue
            if "errexit" in options and within != "if" and not is_tested:
                if within in ("(", "{"):
                    raise _UnclearError  # what follows the group may put the option out of force
                return None
            loss = Hidden(program, "sequence", _label(tokens[place].program))
        elif kind == "then" and within == "if":
            within, is_met = "then", loss is not None
            loss = Hidden(program, "if") if loss is None or loss.shape == "not" else loss
            if not is_met:
                place = _next(tokens, place, frozenset(("elif", "else")))
                if tokens[place].kind == "elif":
                    raise _UnclearError
                place += tokens[place].kind == "else"
        elif kind in ("elif", "else") and within == "then":
            place = _next(tokens, place, frozenset())
        elif kind == {"(": ")", "{": "}", "then": "fi"}.get(within):
            is_tested, within = is_tested and kind != ")", ""
        elif kind != "&&":
            raise _UnclearError
