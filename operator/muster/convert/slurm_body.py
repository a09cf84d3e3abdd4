"""Rewrites the commands of an sbatch script so that each process of a gang can run them, or refuses them. Pure.

Slurm runs a script once, on the first node, and `srun` starts processes on all of them. Muster starts every process by
itself, so each runs the script: `srun` and its options are cut out, and what names the first node becomes MASTER_ADDR.
All else stays as it is written.
"""

import re
import shlex
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from muster.convert.fields import Notes, RefusedError, short
from muster.convert.slurm_options import SRUN, Given, read_options
from muster.protocol.shell_words import ASSIGNMENT, SUBSTITUTION, TOKEN, Clause, placed_clauses
from muster.protocol.starters import without_prefix

FIRST_NODE = "${MASTER_ADDR}"
_PIPES = frozenset(("|", "|&"))
_PRINTING = frozenset(("echo", "printf"))
_KEYWORDS = frozenset(("then", "do", "else", "elif", "{"))
_ENDS_OF_GROUPS = frozenset(("}", "done", "fi", "esac"))
# Programs that remove or replace files, as scripts do before Slurm starts the program once.
_ON_FILES = frozenset(("rm", "mv", "cp", "ln", "rsync", "tar", "unzip", "git", "wget", "curl", "pip", "pip3"))
_INTO_FILE = re.compile(r"(?:1|&)?>>?(?!&)(?!/dev/)")
_LEAVING = frozenset((("break",), ("continue",), ("return",), ("exit",)))
_MODULES = frozenset(("module", "ml"))
_SHOWING = frozenset(("squeue", "sinfo", "sacct", "sstat", "sprio", "seff", "sshare"))
_CONTAINERS = re.compile(r"(?:singularity|apptainer)(?:_wrapper)?|shifter|podman|docker|enroot")
_SLURM_TOOLS = {
    "sbatch": "a job submits no other: let a workflow engine create them",
    "salloc": "a job has its nodes: take it out",
    "scancel": "the job ends with its program: let that exit",
    "scontrol": "no node has a controller of Slurm's: take it out",
    "sbcast": "write the file to a shared volume (--volume PATH=CLAIM)",
    "sgather": "write the file to a shared volume (--volume PATH=CLAIM)",
    **dict.fromkeys(("mpirun", "mpiexec", "orterun", "horovodrun"), "start the program with srun and torchrun"),
    **dict.fromkeys(("ssh", "pdsh", "clush", "pssh"), "no pod answers ssh: start the program with srun"),
}
_MENTIONED = re.compile(r"(?<![\w./$-])(srun|sbatch|salloc|scancel|scontrol|squeue|sinfo|sacct)(?![\w./=-])")
_ONE_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?\})")
_SLURM_VARIABLE = re.compile(r"\$\{?[#!]?(SLURM\w*)(:?[-=+?])?")
_ONE_HOST = re.compile(
    r"\|\s*(?:head\s+(?:-n\s*)?-?1\b|tail\s+(?:-n\s*)?-?1\b|sed\s+-n\s+['\"]?1p|awk\s+['\"]NR\s*==\s*1)"
)
_HOSTNAME = re.compile(r"(?:/usr)?(?:/bin/)?hostname\b[^;&|]*(?:\|.*)?", re.DOTALL)
_SHOWN_HOSTS = re.compile(r"scontrol\s+show\s+hostnames?\b([^|;&]*)(\|.*)?", re.DOTALL)
_SRUN_HOSTNAME = re.compile(r"srun\s(.*)\bhostname\b(.*)", re.DOTALL)
_ONE_TASK = re.compile(r"(?:^|\s)(?:-w|--nodelist|-N\s*1\b|--nodes[= ]1\b|-n\s*1\b|--ntasks[= ]1\b)")
_OF_EACH_NODE = re.compile(r"\bshuf\b|\bmktemp\b|^date\b")
_READ_VARIABLE = re.compile(r"\$(?:\{([#!]?)(\w+)|(\w+))")
_MOST_WORDS = 10_000  # that variables add to the options of all steps
_MOST_BLANKS = 64  # in front of a value in an array
_OF_THIS_HOST = re.compile(r"[\"']?\$\{?(?:HOSTNAME|SLURMD_NODENAME|SLURM_LAUNCH_NODE_IPADDR)\}?[\"']?")


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """A program that `srun` starts, with the options that it was given."""

    options: tuple[Given, ...]
    where: str


@dataclass(slots=True)
class FittedBody:
    """The commands as each process runs them.

    Attributes:
        text: of the commands.
        steps: the programs that `srun` started.
        variables: names of Slurm's variables that the commands read, but for those that the script sets.
        continues: whether commands follow a step, and none of them looks at its exit code.
        loses_pipes: whether a step is in a pipe, whose exit code would be that of its last command.
        draws: whether the commands read RANDOM, which has to be the same on all nodes.
    """

    text: str = ""
    steps: list[ScriptStep] = field(default_factory=list)
    variables: set[str] = field(default_factory=set)
    continues: bool = False
    loses_pipes: bool = False
    draws: bool = False


@dataclass(frozen=True, slots=True)
class _Edit:
    begin: int
    end: int
    text: str


class BodyFitter:
    """Fits the commands of one script.

    Args:
        script: its text.
        variables: those of Slurm's that Muster can set.
        notes: takes what the user should know.
    """

    def __init__(self, script: str, variables: Mapping[str, str], notes: Notes) -> None:
        self._script, self._known, self._notes = script, variables, notes
        self._clauses = list(placed_clauses(script))
        self._line_ends = [match.start() for match in re.finditer("\n", script)]
        self._last_command = max((at for at, it in enumerate(self._clauses) if it.argv), default=-1)
        self._refuses_unset = re.search(r"\bset\s+-\w*u|nounset", script) is not None
        self._edits: list[_Edit] = []  # by their places, which the words are read in
        self._guards: list[_Edit] = []  # by which the script ends with the code of a step
        self._is_followed = self._is_tested = False  # whether commands follow a step, and whether one looks at its code
        self._fitted = FittedBody()
        self._host_lists: dict[str, bool] = {}  # names of variables with all hosts; whether each is an array
        self._assigned = _assigned_values(self._clauses)
        self._single_values = _single_values({**{name: [it] for name, it in variables.items()}, **self._assigned})
        self._options: dict[str, Sequence[str] | None] = {}  # by the variables that hold them
        self._added_words = 0
        self._pipe_ends, self._is_tried = _pipe_ends(self._clauses), _tried_lists(self._clauses)
        self._refusals: dict[str, None] = {}

    @property
    def refusals(self) -> list[str]:
        """What cannot be run, and why."""
        return list(self._refusals)

    def fit(self) -> FittedBody:
        """Return the commands as each process runs them; `refusals` has what cannot be."""
        for place, clause in enumerate(self._clauses):
            if clause.argv:
                self._fit_clause(place, clause)
        for clause in self._clauses:
            self._find_variables(clause)
        if self._is_followed:
            self._edits = sorted([*self._edits, *self._guards], key=lambda it: (it.begin, it.end))
        if self._fitted.steps:
            self._check_lost_codes()
        self._fitted.continues = self._is_followed and not self._is_tested
        self._fitted.draws = re.search(r"\bRANDOM\b", self._script) is not None
        self._fitted.text = self._edited()
        return self._fitted

    def _edited(self) -> str:
        parts, end = [], 0
        for edit in self._edits:
            parts += [self._script[end : edit.begin], edit.text]
            end = edit.end
        return "".join([*parts, self._script[end:]])

    def _where(self, place: int) -> str:
        return f"line {bisect_left(self._line_ends, place) + 1}"

    def _refuse(self, place: int, written: str, remedy: str) -> None:
        self._refusals[f"{self._where(place)}: {short(written)}: {remedy}"] = None

    def _edit(self, begin: int, end: int, text: str) -> None:
        insort(self._edits, _Edit(begin, end, text), key=lambda it: it.begin)

    def _is_cut(self, place: int) -> bool:
        at = bisect_right(self._edits, place, key=lambda it: it.begin)
        return at > 0 and place < self._edits[at - 1].end

    def _fit_clause(self, place: int, clause: Clause) -> None:
        program_at = len(clause.argv) - len(without_prefix(clause.argv))
        program = clause.argv[program_at].rsplit("/", 1)[-1] if program_at < len(clause.argv) else ""
        begin = clause.spans[program_at][0] if program else clause.end
        if program == "srun":
            self._fit_srun(place, clause, program_at)
        elif program in _MODULES:
            self._cut_out(clause, begin, "the image has the software")
        elif program in _SHOWING or (program == "scontrol" and clause.argv[program_at + 1 :][:1] == ("show",)):
            if any(word.startswith("hostname") for word in clause.argv[program_at:]):
                self._refuse(begin, "scontrol show hostnames", "no worker knows the names of all nodes: take it out")
            self._cut_out(clause, begin, "there is no Slurm to ask: kubectl muster status JOB shows the job")
        elif program in _SLURM_TOOLS:
            self._refuse(begin, program, _SLURM_TOOLS[program])
            return
        elif _CONTAINERS.fullmatch(program):
            self._refuse_container(begin, program)
        elif program in _ON_FILES:
            written = short(self._script[begin : clause.spans[-1][1]])
            why = "each process runs it, at each start: files that others use, or that a restart needs, may be gone"
            self._notes.check.append(f"{self._where(begin)}: {written}: {why}")
        self._fit_parts(clause, is_printed=program in _PRINTING)

    def _refuse_container(self, place: int, program: str) -> None:
        self._refuse(place, program, "the worker is the container: write what it runs, and name the image by --image")

    def _cut_out(self, clause: Clause, begin: int, why: str) -> None:
        end = clause.spans[-1][1]
        self._edit(begin, end, ":")
        self._notes.left_out.append(f"{self._where(begin)}: {short(self._script[begin:end])}: {why}")

    def _fit_srun(self, place: int, clause: Clause, program_at: int) -> None:
        begin = clause.spans[program_at][0]
        where = self._where(begin)
        try:
            words, origins = self._expanded_options(clause, program_at + 1, where)
            options, count = read_options(words, SRUN, where)
        except RefusedError as error:
            self._refusals[str(error)] = None
            return
        if count >= len(words):
            self._refuse(begin, "srun", "it starts nothing: write the program behind its options")
            return
        if clause.operators.strip() == "&":
            remedy = "steps that run beside each other are no gang: take the & out, or write one job for each"
            self._refuse(begin, "srun ... &", remedy)
        program = words[count].rsplit("/", 1)[-1]
        if _CONTAINERS.fullmatch(program):
            self._refuse_container(begin, program)
        exported = " ".join(_exported(options))
        program_begin = clause.spans[origins[count]][0]
        if any(_INTO_FILE.match(self._script, word_begin) for word_begin, _ in clause.spans[program_at:]):
            why = "all processes write this file, and Muster sees no step and shows no line of it: take it out"
            self._notes.check.append(f"{where}: {short(self._script[program_begin : clause.spans[-1][1]])}: {why}")
        self._edit(begin, program_begin, f"{exported} " if exported else "")
        self._notes.became.append(f"{where}: {short(self._script[begin:program_begin])}: Muster starts the program")
        self._fitted.steps.append(ScriptStep(tuple(options), where))
        self._keep_exit_code(place, clause, program_at)

    def _expanded_options(self, clause: Clause, first: int, where: str) -> tuple[list[str], list[int]]:
        """Return srun's words, with variables that hold options written out, and which word each comes of.

        Raises:
            RefusedError: the options of all steps are too many.
        """
        words: list[str] = []
        origins: list[int] = []
        for index in range(first, len(clause.argv)):
            match = _ONE_VARIABLE.fullmatch(clause.argv[index])
            options = self._options_in(match[1] or match[2]) if match else None
            self._added_words += len(options or ())
            if self._added_words > _MOST_WORDS:
                raise RefusedError(f"{where}: srun: variables add more than {_MOST_WORDS} words: write its options")
            parts = options if options is not None else [self._resolved(clause.argv[index])]
            words += parts
            origins += [index] * len(parts)
        return words, origins

    def _options_in(self, name: str) -> Sequence[str] | None:
        """Return the options that a variable holds, as words; None: it holds something else."""
        if name not in self._options:
            values = self._assigned.get(name, [])
            are_options = bool(values) and all(not it.strip() or it.strip().startswith("-") for it in values)
            parts = [part for value in values for part in _split(self._resolved(value))] if are_options else None
            self._options[name] = parts
        return self._options[name]

    def _resolved(self, text: str) -> str:
        """Return a text with the values of variables that have one each."""

        def value(match: re.Match[str]) -> str:
            return self._single_values.get(match[1] or match[2], match.group())

        return _ONE_VARIABLE.sub(value, text)

    def _keep_exit_code(self, place: int, clause: Clause, program_at: int) -> None:
        """Let the script end with the code of a step that fails: Slurm counts tasks, and Muster the script's code."""
        last = self._pipe_ends[place]
        self._fitted.loses_pipes |= last > place
        self._is_followed |= self._last_command > last
        is_condition = any(word in ("if", "while", "until", "!") for word in clause.argv[:program_at])
        if is_condition or self._is_tried[last]:
            self._is_tested = True
            return
        if not self._clauses[last].argv:
            return
        end, operator = self._clauses[last].spans[-1][1], self._clauses[last].operators.strip()
        if operator in ("", ";", ")", "}", ";;"):
            self._guards.append(_Edit(end, end, " || exit"))
        elif operator == "&&":
            words = zip(clause.argv, clause.spans, strict=True)
            begin = next(span[0] for word, span in words if word not in _KEYWORDS)
            self._guards += [_Edit(begin, begin, "{ "), _Edit(end, end, " || exit; }")]

    def _check_lost_codes(self) -> None:
        """Ask for set -e where the code of a step is lost on its way: `exit` ends a subshell alone, or a part of a
        pipe."""
        names = {self._clauses[at].argv[-1] for at, it in enumerate(self._clauses) if it.argv and it.operators == "()"}
        depth, lost = 0, ""
        for clause in self._clauses:
            is_piped = clause.operators.strip() in _PIPES
            first = clause.argv[0] if clause.argv else ")"
            if is_piped and (first in _ENDS_OF_GROUPS or first in names or first == ")"):
                lost = lost or self._where(clause.end)
            if depth > 0 and self._is_followed and any(word.rpartition("/")[2] == "srun" for word in clause.argv):
                lost = lost or self._where(clause.spans[0][0])
            depth = max(0, depth + clause.operators.count("(") - clause.operators.count(")"))
        if lost and not re.search(r"\bset\s+-\w*e", self._script):
            remedy = "write `set -eo pipefail` below the lines #SBATCH"
            self._notes.check.append(f"{lost}: a program that fails in ( ) or in a pipe fails no job: {remedy}")

    def _fit_parts(self, clause: Clause, *, is_printed: bool) -> None:
        for word, (begin, end) in zip(clause.argv, clause.spans, strict=True):
            if self._is_cut(begin):
                continue
            match = ASSIGNMENT.match(word)
            if match and self._fit_assignment(match[1], begin, end):
                continue
            for at, written in _substitutions(self._script[begin:end]):
                self._fit_substitution(begin + at, written, match[1] if match else "", is_printed=is_printed)
            if not is_printed:
                self._check_mentions(clause, word, begin, end)

    def _fit_assignment(self, name: str, begin: int, end: int) -> bool:
        """Fit an assignment as a whole; returns whether that was done."""
        written = self._script[begin:end]
        value_at = written.index("=") + 1
        value = written[value_at:]
        copied = re.fullmatch(r"\(?\s*[\"']?\$\{?(\w+)(?:\[[@*]\])?\}?[\"']?\s*", value)
        if copied and copied[1] in self._host_lists:
            self._host_lists[name] = value.startswith("(") or self._host_lists[copied[1]]
            return True
        is_first = _OF_THIS_HOST.fullmatch(value) is not None
        is_address = name == "MASTER_ADDR" and not _ONE_VARIABLE.fullmatch(value.strip("\"'")) and "[" not in value
        is_port = re.search(r"(?:^|_)port$", name.lower()) is not None and re.search(r"\$\([^(]|`", value) is not None
        if not (is_first or is_address or is_port):
            return False
        new = "${MASTER_PORT}" if is_port else FIRST_NODE
        self._edit(begin + value_at, end, new)
        self._notes.became.append(f"{self._where(begin)}: {short(written)} -> {name}={new}, which Muster sets")
        return True

    def _fit_substitution(self, place: int, written: str, assigned: str, *, is_printed: bool) -> None:
        """Fit `$(…)` by what it stands for on the first node, where Slurm would resolve it."""
        inner = (written[1:-1] if written[0] == "`" else written[2:-1]).strip()
        new = self._meaning(inner, assigned, is_array=self._is_in_array(place))
        if new:
            self._edit(place, place + len(written), new)
            self._notes.became.append(f"{self._where(place)}: {short(written)} -> {new}, which Muster sets")
            return
        for at, nested in _substitutions(inner):
            self._fit_substitution(place + written.index(inner) + at, nested, "", is_printed=is_printed)
        tool = _MENTIONED.search(inner)
        if tool:
            self._refuse(place, written, f"{tool[1]} asks Slurm, and there is none here: write its answer")
        elif not is_printed and _OF_EACH_NODE.search(inner):
            self._notes.check.append(f"{self._where(place)}: {short(written)}: each node has its own answer")

    def _meaning(self, inner: str, assigned: str, *, is_array: bool) -> str:
        """Return what the answer of a command is; "": it is none of Slurm's, nor of the first node."""
        shown = _SHOWN_HOSTS.fullmatch(inner)
        asked = _SRUN_HOSTNAME.fullmatch(inner)
        if shown and shown[2] and re.fullmatch(r"\|\s*wc\s+-l\s*", shown[2]):
            return "${SLURM_NNODES}"
        if _HOSTNAME.fullmatch(inner):
            return FIRST_NODE
        if shown and shown[2]:
            return FIRST_NODE if _ONE_HOST.match(shown[2]) else ""
        if asked and (_ONE_TASK.search(f" {asked[1]}") or _ONE_HOST.search(asked[2])):
            return FIRST_NODE
        if shown and assigned:
            self._host_lists[assigned] = is_array
            return FIRST_NODE
        variables = re.findall(r"\$\{?(\w+)", inner)
        named = any(name in self._host_lists or name == "MASTER_ADDR" for name in variables)
        is_lookup = re.match(r"(?:getent|host|dig|nslookup)\b", inner) is not None
        is_first = inner.startswith("echo") and _ONE_HOST.search(inner) is not None
        return FIRST_NODE if named and (is_lookup or is_first) else ""

    def _is_in_array(self, place: int) -> bool:
        blanks = self._script[max(0, place - _MOST_BLANKS) : place]
        return blanks.rstrip(" \t\"'").endswith("(")

    def _check_mentions(self, clause: Clause, word: str, begin: int, end: int) -> None:
        written = self._script[begin:end]
        tool = _MENTIONED.search(word.replace("$_", ""))
        if tool and clause.argv[0] not in ("which", "command", "unset", "trap"):
            self._refuse(begin, written, f"{tool[1]} stands in a text: write it as a command by itself")
        for match in _READ_VARIABLE.finditer(written):
            is_array = self._host_lists.get(match[2] or match[3])
            close = written.find("}", match.end()) if match[2] else match.end()
            if is_array is None or close < 0:
                continue
            rest = written[match.end() : close]
            is_first = not match[1] and (rest == "[0]" or (is_array and not rest))
            if not is_first and not self._is_cut(begin + match.start()):
                remedy = "no worker knows the names of all nodes, but its own rank, their number and MASTER_ADDR"
                self._refuse(begin, written[match.start() : close + bool(match[2])], remedy)

    def _find_variables(self, clause: Clause) -> None:
        """Find the variables of Slurm's that a command reads, and refuse those that nothing sets."""
        is_printed = bool(clause.argv) and clause.argv[0] in _PRINTING
        for begin, end in clause.spans:
            for match in _SLURM_VARIABLE.finditer(self._script, begin, end):
                name = match[1]
                if self._is_cut(match.start()) or name in self._assigned:
                    continue
                if name in self._known:
                    self._fitted.variables.add(name)
                elif match[2]:
                    continue
                elif is_printed and not self._refuses_unset:
                    note = f"{self._where(begin)}: ${name} is empty: nothing sets it here"
                    self._notes.left_out.append(note)
                else:
                    self._refuse(begin, f"${name}", "nothing sets it here: write what it stands for")


def _split(value: str) -> list[str]:
    try:
        return shlex.split(value, comments=True)
    except ValueError:
        return value.split()


def _assigned_values(clauses: Sequence[Clause]) -> dict[str, list[str]]:
    """Return the values of each variable that the commands set."""
    values: dict[str, list[str]] = {}
    for clause in clauses:
        for word in clause.argv:
            match = ASSIGNMENT.match(word)
            if match:
                values.setdefault(match[1], []).append(word[match.end() :].strip())
    return values


def _single_values(values: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the values of those variables that have one each, without other variables in it."""
    distinct = {name: set(several) for name, several in values.items()}
    return {name: several.pop() for name, several in distinct.items() if len(several) == 1 and "$" not in min(several)}


def _pipe_ends(clauses: Sequence[Clause]) -> list[int]:
    """Return, by the place of each command, that of the last one in its pipe, which may be on a line of its own."""
    ends = list(range(len(clauses)))
    for at in range(len(clauses) - 2, -1, -1):
        is_piped = clauses[at].operators.strip() in _PIPES
        goes_on = not clauses[at].argv and at > 0 and clauses[at - 1].operators.strip() in _PIPES
        if is_piped or goes_on:
            ends[at] = ends[at + 1]
    return ends


def _tried_lists(clauses: Sequence[Clause]) -> list[bool]:
    """Return, by the place of each command, whether its list says what follows where one of them fails, or ends a loop
    where none does."""
    tried = [clause.operators.strip() == "||" for clause in clauses]
    for at in range(len(clauses) - 2, -1, -1):
        if clauses[at].operators.strip() in ("&&", *_PIPES):
            tried[at] = clauses[at + 1].argv[:1] in _LEAVING or tried[at + 1]
    return tried


def _exported(options: Sequence[Given]) -> Iterator[str]:
    """Yield the variables that `--export` sets, as assignments before a command."""
    for given in options:
        if given.option.name == "--export":
            for name, _, value in (pair.partition("=") for pair in exported_pairs(given.value)):
                yield f"{name}={_quoted(value)}"


def _quoted(value: str) -> str:
    """Return a value as a shell reads it, with the variables in it."""
    if "$" not in value:
        return shlex.quote(value)
    escaped = re.sub(r'(["`\\])', r"\\\1", value)
    return f'"{escaped}"'


def exported_pairs(value: str) -> list[str]:
    """Return the variables that a value of `--export` sets, each as NAME=VALUE."""
    return [pair for pair in value.split(",") if "=" in pair]


def _substitutions(written: str) -> Iterator[tuple[int, str]]:
    """Yield the command substitutions of a word that a shell resolves before it starts a command, with their places."""
    place = 0
    while place < len(written):
        match = TOKEN.match(written, place)
        if match is None:
            return
        kind = match.lastgroup or ""
        if match.group() == "#" and (place == 0 or written[place - 1].isspace()):
            place = written.find("\n", place) if "\n" in written[place:] else len(written)
            continue
        if kind in ("double", "simple", "resolved"):
            for inner in re.finditer(rf"\\.|(?P<whole>{SUBSTITUTION.pattern})", match.group(), re.DOTALL):
                substitution = inner.group("whole")
                if substitution and not substitution.startswith(("$((", "$$")):
                    yield place + inner.start(), substitution
        place = match.end()
