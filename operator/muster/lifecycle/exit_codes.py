"""Find shell lines in which the exit code of the program that trains is lost, as in `python3 train.py | tee log`. Pure.

The line is run in thought: the program that trains fails, and the shell ends with whatever code that leads to. Where
this surely is another command's code, Muster would take each failure for success. What is unclear gives no warning:
functions, `case`, loops around the program, a code that is kept in a variable, commands that may look at the outcome.
Source: POSIX.1-2017, Shell Command Language, sections 2.8.2, 2.9 and 2.14, and bash's manual on `pipefail`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import lru_cache, partial

from muster.lifecycle.shell_syntax import AndOr, Commands, Group, If, Loop, Pipeline, Simple, UnclearError, parse
from muster.protocol.starters import (
    LONGEST_LINE,
    PYTHON,
    WRAPPERS,
    shell_at,
    shell_line,
    started_in_shell,
    without_prefix,
)

_KEPT_LINES = 4096  # as many jobs may have one each, and are parsed again and again
_MOST_TRAINERS = 8  # of one line
_LONGEST_NAME = 64
_BY_SSH = frozenset(("mpirun", "mpiexec", "orterun", "prterun", "horovodrun", "srun"))
_TRAINS = re.compile(r"train|tun(?:e|ing)", re.IGNORECASE)
_NOT_TRAINING = frozenset(
    (
        "pip",
        "venv",
        "virtualenv",
        "ensurepip",
        "compileall",
        "http.server",
        "json.tool",
        "site",
        "pytest",
        "tensorboard",
    )
)
_VALUED = frozenset(("-W", "-X", "--check-hash-based-pycs"))  # options of python, with a word of their own
_HARMLESS = frozenset(
    [
        "echo",
        "printf",
        "true",
        ":",
        "tee",
        "cat",
        "date",
        "sleep",
        "touch",
        "ls",
        "cp",
        "mv",
        "rm",
        "ln",
        "mkdir",
        "rsync",
        "aws",
        "gsutil",
        "gcloud",
        "s3cmd",
        "rclone",
        "sync",
        "chmod",
        "chown",
        "tar",
        "gzip",
        "zip",
        "unzip",
        "curl",
        "wget",
        "nvidia-smi",
        "tail",
        "head",
        "df",
        "du",
        "free",
        "env",
        "hostname",
        "pwd",
        "cd",
        "pushd",
        "popd",
        "export",
        "declare",
        "local",
        "readonly",
        "typeset",
        "unset",
        "ulimit",
        "umask",
        "shopt",
        "sed",
        "cut",
        "tr",
        "ts",
        "sort",
        "uniq",
        "logger",
        "pv",
        "less",
        "more",
        "module",
        "conda",
        "mamba",
        "pip",
        "pip3",
        "apt-get",
        "apk",
        "git",
        "source",
        ".",
        "deactivate",
        "whoami",
        "id",
        "uname",
        "wait",
        "set",
        "trap",
    ]
)
_NO_STATUS = frozenset(("return", "break", "continue", "kill", "pkill", "killall", "eval", "alias"))
_LOOKS = re.compile(r"\$\?|\$\{\?|PIPESTATUS|pipestatus")
_END_SIGNALS = frozenset(("EXIT", "0"))
_OTHER_SIGNALS = frozenset(("ERR", "DEBUG", "RETURN", "CHLD", "SIGCHLD"))
_KNOWS_PIPEFAIL = frozenset(("bash", "zsh"))


class Shape(StrEnum):
    """By what an exit code is lost."""

    PIPE = "pipe"
    OR = "or"
    SEQUENCE = "sequence"
    BACKGROUND = "background"
    IF = "if"
    NOT = "not"
    TRAP = "trap"


class _Status(Enum):
    OK = "ok"
    FAILED = "failed"
    OTHERS = "others"  # of another program, which may fail by itself
    UNKNOWN = "unknown"


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
    last_command: str
    options: str
    needs_more: bool
    shell: str


def hidden_exit_code(command: Sequence[str]) -> Hidden | None:
    """Return the exit code that the shell's line of a command loses; None: none that is surely lost."""
    line, place = shell_line(command), shell_at(command)
    if line is None or place is None or len(line) > LONGEST_LINE:
        return None
    shell = command[place].rsplit("/", 1)[-1]
    options = _options(command[place + 1 : command.index(line, place)] if line else ())
    return _hidden(line, options, shell)


def message(found: Hidden) -> str:
    """Return what people should know of an exit code that is lost, and the way to keep it."""
    lost = _LOST[found.shape].format(program=found.program, last=found.last_command)
    follows = f"each failure of {found.program} counts as success, so that the job would be Succeeded and nothing would"
    return f"{lost}: {follows} be restarted. {_remedy(found)}"


_LOST: Mapping[Shape, str] = {
    Shape.PIPE: "the shell's line pipes {program} into {last}, and goes on with the exit code of {last}",
    Shape.OR: "`|| {last}` behind {program} in the shell's line takes the place of its exit code",
    Shape.SEQUENCE: "`{last}` runs behind {program} in the shell's line, and its exit code takes the other's place",
    Shape.BACKGROUND: "the shell's line starts {program} in the background (&), and does not end with its exit code",
    Shape.IF: "the shell's line starts {program} as the condition of an `if`, and does not end with its exit code",
    Shape.NOT: "`!` before {program} in the shell's line turns its exit code round",
    Shape.TRAP: "a trap in the shell's line ends the shell with code 0 also where {program} fails",
}
_REMEDIES: Mapping[Shape, str] = {
    Shape.PIPE: "Write the output to a file without a pipe (`> log 2>&1`)",
    Shape.OR: "Take `|| {last}` out, or write `|| exit 1`",
    Shape.SEQUENCE: "Let the line end with {program}, or write `|| exit 1` behind it",
    Shape.BACKGROUND: "Take the `&` out, or put `pid=$!` behind it and let the line end with `wait $pid`",
    Shape.IF: "Let the branch for a failure end with `exit 1`",
    Shape.NOT: "Take the `!` out",
    Shape.TRAP: "Take `exit 0` out of the trap",
}


def _remedy(found: Hidden) -> str:
    more = _REMEDIES[found.shape].format(program=found.program, last=found.last_command)
    if not found.options:
        return more
    if "pipefail" in found.options and found.shell not in _KNOWS_PIPEFAIL:
        less = f"start the line with `bash {found.options} -c`: not every {found.shell} knows pipefail"
    else:
        less = f"put `set {found.options};` in front of the line"
    return f"{more}, and {less}" if found.needs_more else less[0].upper() + less[1:]


@dataclass(frozen=True, slots=True)
class _Options:
    errexit: bool = False
    pipefail: bool = False

    def __or__(self, other: "_Options") -> "_Options":
        return _Options(self.errexit or other.errexit, self.pipefail or other.pipefail)


# The least that helps first.
_REMEDY_OPTIONS = {
    "-o pipefail": _Options(pipefail=True),
    "-e": _Options(errexit=True),
    "-eo pipefail": _Options(errexit=True, pipefail=True),
}


def _options(words: Sequence[str], before: _Options = _Options()) -> _Options:
    """Return the options after those words of `set`, or of a shell before its line."""
    found, rest = before, iter(words)
    for word in rest:
        if word in ("-", "--"):
            break
        if word[:1] not in ("-", "+") or word.startswith("--"):
            continue
        is_on = word[0] == "-"
        if "e" in word:
            found = replace(found, errexit=is_on)
        for _ in range(word.count("o") + word.count("O")):
            name = next(rest, "")
            if name in ("errexit", "pipefail"):
                found = replace(found, **{name: is_on})
    return found


@lru_cache(maxsize=_KEPT_LINES)
def _hidden(line: str, options: _Options, shell: str) -> Hidden | None:
    try:
        parsed = parse(line)
        trainers, must_all = _trainers(parsed)
        found = None
        for first in range(len(trainers)):
            lost = _lost(parsed, trainers, first, options)
            if lost is not None:
                found = found or _described(parsed, trainers, first, options, lost, shell)
            elif must_all:
                return None
    except UnclearError:
        return None
    return found


def _described(
    parsed: Commands, trainers: Sequence[Simple], first: int, options: _Options, lost: "_Loss", shell: str
) -> Hidden:
    name = _name_of(trainers[first].argv)
    rest: _Loss | None = None
    for text, more in _REMEDY_OPTIONS.items():
        rest = _lost(parsed, trainers, first, options | more)
        if rest is None:
            return Hidden(name, lost.shape, lost.last_command, text, needs_more=False, shell=shell)
    also = "-o pipefail" if lost.shape is Shape.PIPE and rest != lost else ""
    lost = rest or lost
    return Hidden(name, lost.shape, lost.last_command, also, needs_more=bool(also), shell=shell)


@dataclass(frozen=True, slots=True)
class _Loss:
    shape: Shape
    last_command: str = ""


def _lost(parsed: Commands, trainers: Sequence[Simple], first: int, options: _Options) -> _Loss | None:
    """Return by what the exit code is lost where one of these programs and those behind it fail; None: it is not."""
    failing = {id(each) for each in trainers[first:]}
    run = _Run(failing=failing, first=id(trainers[first]), options=options)
    try:
        status = run.commands(parsed, is_condition=False)
    except _ExitError as ended:
        status = ended.status
    if run.has_failed and run.exits_well and status is _Status.FAILED:
        return _Loss(Shape.TRAP)
    is_lost = run.first_failed and status in (_Status.OK, _Status.OTHERS)
    return run.losses[0] if is_lost and run.losses else None


class _ExitError(Exception):
    """The shell ends.

    Attributes:
        status: with which it ends.
    """

    def __init__(self, status: _Status) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class _Run:
    """What has happened so far in the line.

    Attributes:
        failing: the programs that fail, by their identity.
        first: the one of them that is asked about.
        options: of the shell.
        last: the last status, as in `$?`.
        has_failed: whether one of them has failed.
        first_failed: whether the one that is asked about has failed.
        behind: whether one has failed in the background.
        exits_well: whether a trap ends the shell with 0.
        losses: where the status of a program that failed was lost.
    """

    failing: set[int]
    first: int
    options: _Options
    last: _Status = _Status.OK
    has_failed: bool = False
    first_failed: bool = False
    behind: bool = False
    exits_well: bool = False
    losses: list[_Loss] = field(default_factory=list)

    def commands(self, listed: Commands, *, is_condition: bool) -> _Status:
        status = _Status.OK
        for each in listed:
            before = status
            if each.in_background:
                status = self._apart(each)
                if status is _Status.FAILED:
                    self.behind = True
                    self.losses.append(_Loss(Shape.BACKGROUND))
                status = before = _Status.OK
            else:
                try:
                    status = self._and_or(each, is_condition=is_condition)
                except _ExitError as ended:
                    self._note_loss(before, ended.status, each)
                    raise
            self._note_loss(before, status, each)
            self.last = status
        return status

    def _note_loss(self, before: _Status, after: _Status, each: AndOr) -> None:
        if before is _Status.FAILED and after is not _Status.FAILED:
            self.losses.append(_Loss(Shape.SEQUENCE, _label(each.rest[-1][1] if each.rest else each.first)))

    def _and_or(self, each: AndOr, *, is_condition: bool) -> _Status:
        status = self._pipeline(each.first, is_condition=is_condition or bool(each.rest))
        is_last = True  # whether what ran last is the last of the list: only then does `set -e` count
        for place, (operator, pipeline) in enumerate(each.rest):
            within = is_condition or place + 1 < len(each.rest)
            self.last = status
            is_bad = status is _Status.FAILED
            if status is _Status.UNKNOWN or (status is _Status.OTHERS and self.has_failed):
                ran = self._perhaps([partial(self._pipeline, pipeline, is_condition=within)])
                is_good_then = operator == "||" and ran in (_Status.OK, _Status.OTHERS)
                status = ran if is_good_then or ran is _Status.FAILED else _Status.UNKNOWN
                is_last = True
            elif is_bad == (operator == "||"):
                status = self._pipeline(pipeline, is_condition=within)
                if is_bad and status is not _Status.FAILED:
                    self.losses.append(_Loss(Shape.OR, _label(pipeline)))
                is_last = True
            else:
                is_last = False
        if is_last and not is_condition:
            self._end_by_option(status, each)
        return status

    def _end_by_option(self, status: _Status, each: AndOr) -> None:
        """End the shell where `set -e` says so."""
        last = each.rest[-1][1] if each.rest else each.first
        if not self.options.errexit or last.is_negated:
            return
        if status is _Status.FAILED:
            raise _ExitError(status)
        if status is _Status.UNKNOWN and self.has_failed:
            raise UnclearError

    def _pipeline(self, pipeline: Pipeline, *, is_condition: bool) -> _Status:
        if len(pipeline.parts) == 1:
            status = self._part(pipeline.parts[0], is_condition=is_condition or pipeline.is_negated)
        else:
            status = self._pipe(pipeline)
        if not pipeline.is_negated:
            return status
        if status is _Status.FAILED:
            self.losses.append(_Loss(Shape.NOT))
            return _Status.OK
        return _Status.UNKNOWN

    def _pipe(self, pipeline: Pipeline) -> _Status:
        statuses = [self._apart(part) for part in pipeline.parts]
        status = statuses[-1]
        if _Status.FAILED not in statuses:
            return status
        if status is _Status.FAILED or self.options.pipefail:
            return _Status.FAILED
        if status is _Status.UNKNOWN and not _is_check(pipeline.parts[-1]):
            status = _Status.OTHERS
        self.losses.append(_Loss(Shape.PIPE, _label(pipeline.parts[-1])))
        return status

    def _apart(self, what: "AndOr | Simple | Group | If | Loop") -> _Status:
        """Run something in a shell of its own, whose options and end are not this one's."""
        options, exits_well = self.options, self.exits_well
        try:
            if isinstance(what, AndOr):
                return self._and_or(what, is_condition=False)
            return self._part(what, is_condition=False)
        except _ExitError as ended:
            return ended.status
        finally:
            self.options, self.exits_well = options, exits_well

    def _part(self, part: "Simple | Group | If | Loop", *, is_condition: bool) -> _Status:
        if isinstance(part, Simple):
            return self._simple(part)
        if isinstance(part, If):
            return self._if(part, is_condition=is_condition)
        if isinstance(part, Loop):
            return self._loop(part)
        if part.is_subshell:
            return self._apart(replace(part, is_subshell=False))
        return self.commands(part.body, is_condition=is_condition)

    def _if(self, part: If, *, is_condition: bool) -> _Status:
        bodies: list[Commands] = []
        for condition, body in part.branches:
            known = len(self.losses)
            status = self.commands(condition, is_condition=True)
            if _Loss(Shape.NOT) in self.losses[known:]:
                self.losses[known:] = [_Loss(Shape.IF)]
            if status is _Status.FAILED:
                self.losses.append(_Loss(Shape.IF))
                continue
            bodies.append(body)
            if status is _Status.OK or (status is _Status.OTHERS and not self.has_failed):
                break
        else:
            bodies.append(part.otherwise)
        if len(bodies) == 1:
            return self.commands(bodies[0], is_condition=is_condition)
        return self._perhaps([partial(self.commands, body, is_condition=is_condition) for body in bodies])

    def _perhaps(self, ways: Sequence[Callable[[], _Status]]) -> _Status:
        """Run several ways of which one is taken: the code is kept where one of them keeps it."""
        before, options, had_failed = self.options, self.options, self.has_failed
        statuses = set()
        for way in ways:
            self.options = before
            try:
                statuses.add(way())
            except _ExitError as ended:
                if had_failed:
                    raise UnclearError from None
                if self.has_failed and ended.status is _Status.FAILED:
                    raise
            options |= self.options
        self.options = options
        order = (_Status.FAILED, _Status.UNKNOWN, _Status.OTHERS)
        return next((status for status in order if status in statuses), _Status.OK)

    def _loop(self, part: Loop) -> _Status:
        had_failed = self.has_failed
        status = self._perhaps([partial(self.commands, part.body, is_condition=True)])
        if self.has_failed != had_failed:
            raise UnclearError  # it may try again
        return _Status.OK if status is _Status.OK else _Status.UNKNOWN

    def _simple(self, simple: Simple) -> _Status:
        words = without_prefix(simple.argv)
        is_exec = "exec" in simple.argv[: len(simple.argv) - len(words)]
        if is_exec and words and words[0][:1] in "<>&0123456789":
            return _Status.OK  # redirections alone
        status = self._of_program(simple, words)
        if is_exec:
            raise _ExitError(status)
        return status

    def _of_program(self, simple: Simple, words: Sequence[str]) -> _Status:
        if id(simple) in self.failing:
            self.has_failed = True
            self.first_failed = self.first_failed or id(simple) == self.first
            return _Status.FAILED
        name = words[0].rsplit("/", 1)[-1] if words else "true"  # of assignments alone
        if name == "exit":
            raise _ExitError(self._exit_status(words[1:]))
        if name == "set":
            self.options = _options(words[1:], self.options)
        elif name == "shopt" and "pipefail" in words:
            self.options = replace(self.options, pipefail="-s" in words or "-so" in words)
        elif name == "trap":
            self._trap(words[1:])
        elif name == "wait" and len(words) > 1:
            return _Status.FAILED if self.behind else _Status.UNKNOWN
        elif name == "false":
            return _Status.FAILED
        elif name in _NO_STATUS and self.has_failed:
            raise UnclearError
        if shell_at(words) == 0 and all(word.startswith("-") for word in words[1:]):
            raise UnclearError  # it reads its commands
        if name in ("echo", "printf"):
            return _Status.OK
        if any(map(_LOOKS.search, words)):
            return _Status.UNKNOWN
        if name in _HARMLESS or words[:1] == ():
            return _Status.OK
        return _Status.OTHERS if _python_program(words) or started_in_shell(words) else _Status.UNKNOWN

    def _exit_status(self, words: Sequence[str]) -> _Status:
        code = words[0] if words else "$?"
        if code == "$?":
            return self.last
        if code.isascii() and code.isdigit() and len(code) < len("1000"):
            return _Status.FAILED if int(code) % 256 else _Status.OK
        return _Status.UNKNOWN

    def _trap(self, words: Sequence[str]) -> None:
        signals = set(words[1:])
        if not _OTHER_SIGNALS.isdisjoint(signals):
            raise UnclearError
        if not _END_SIGNALS.isdisjoint(signals):
            action = words[0].strip(" ;")
            self.exits_well = action == "exit 0"
            if not self.exits_well and any(word in action for word in ("exit", "kill", "(")):
                raise UnclearError


def _is_check(part: "Simple | Group | If | Loop") -> bool:
    """Whether the last part of a pipe may look at what it reads."""
    words = without_prefix(part.argv) if isinstance(part, Simple) else ()
    is_grep = bool(words) and words[0].rsplit("/", 1)[-1].endswith("grep")
    return is_grep and any(re.match(r"-[a-zA-Z]*q|--quiet|--silent", word) for word in words[1:])


def _label(what: "Pipeline | Simple | Group | If | Loop") -> str:
    """Return a short name of a command, for people."""
    if isinstance(what, Pipeline):
        what = what.parts[-1]
    if isinstance(what, Simple):
        words = without_prefix(what.argv)
        if words and words[0] == "exit":
            return " ".join(words[:2])[:_LONGEST_NAME]
        return words[0].rsplit("/", 1)[-1][:_LONGEST_NAME] if words else "an assignment"
    if isinstance(what, Group):
        last = what.body[-1] if what.body else None
        return _label(last.rest[-1][1] if last.rest else last.first) if last else "nothing"
    return "an if" if isinstance(what, If) else "a loop"


def _trainers(parsed: Commands) -> tuple[list[Simple], bool]:
    """Return the programs that train, and whether they are known so little that all their codes have to be lost.

    These are programs that start processes, or else Python's, or else scripts in the last command of the line.
    """
    simple = list(_each_simple(parsed))
    starting = [each for each in simple if _starts(each.argv)]
    if starting:
        return starting[:_MOST_TRAINERS], False
    programs = [(each, _python_program(without_prefix(each.argv))) for each in simple]
    python = [(each, name) for each, name in programs if name]
    named = [each for each, name in python if _TRAINS.search(name)]
    if named or len(python) == 1:
        return (named or [each for each, _ in python])[:_MOST_TRAINERS], False
    if python:
        return [each for each, _ in python][:_MOST_TRAINERS], True
    scripts = [each for each in _each_simple(parsed[-1:]) if _script(each.argv)]
    return scripts[-1:], False


def _each_simple(commands: Commands) -> Iterator[Simple]:
    for each in commands:
        for pipeline in (each.first, *(pipeline for _, pipeline in each.rest)):
            for part in pipeline.parts:
                if isinstance(part, Simple):
                    yield part
                elif isinstance(part, If):
                    for condition, body in part.branches:
                        yield from _each_simple(condition + body)
                    yield from _each_simple(part.otherwise)
                else:
                    yield from _each_simple(part.body)


def _starts(words: Sequence[str]) -> bool:
    program = without_prefix(words)
    return bool(started_in_shell(words)) or (bool(program) and program[0].rsplit("/", 1)[-1] in _BY_SSH)


def _python_program(words: Sequence[str]) -> str:
    """Return the file or module that a Python runs, also behind another program; "" for none, and for tools."""
    if words and words[0].rsplit("/", 1)[-1] in WRAPPERS:
        if not {"install", "pip", "add", "sync"}.isdisjoint(words[1:4]):
            return ""
        at = next((place for place, word in enumerate(words) if _is_python(word)), len(words))
        words = words[at:]
    if not words or not _is_python(words[0]):
        return ""
    if words[0].endswith(".py"):
        return words[0]
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            module = next(rest, "")
            return "" if module.partition(".")[0] in _NOT_TRAINING or module in _NOT_TRAINING else module
        if word in _VALUED:
            next(rest, None)
        elif not word.startswith("-"):
            return word if word[:1] not in "<>" else ""
        elif not word.startswith("--") and "c" in word:
            return ""
    return ""


def _is_python(word: str) -> bool:
    name = word.rsplit("/", 1)[-1]
    return name.endswith(".py") or PYTHON.match(name) is not None


def _script(words: Sequence[str]) -> str:
    """Return the file of commands that a shell runs; "": none."""
    program = without_prefix(words)
    first = program[1:2] if shell_at(program) == 0 else program[:1]
    return first[0] if first and first[0].endswith(".sh") else ""


def _name_of(words: Sequence[str]) -> str:
    """Return the program with what it runs, for people."""
    program = without_prefix(words)
    starter = started_in_shell(words)
    if starter:
        return starter[0].rsplit("/", 1)[-1][:_LONGEST_NAME]
    name = _python_program(program) or _script(words)
    if name:
        return name.rsplit("/", 1)[-1][:_LONGEST_NAME]
    return program[0].rsplit("/", 1)[-1][:_LONGEST_NAME]
