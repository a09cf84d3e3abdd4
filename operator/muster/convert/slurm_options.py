"""Reads options of sbatch and srun: each is taken over, means nothing here, has to be checked, or is refused. Pure.

Source: Slurm 25.05, doc/man/man1/sbatch.1 and srun.1; NVIDIA/pyxis 0.20 for `--container-*`; SageMaker HyperPod for
`--auto-resume`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from muster.convert.fields import RefusedError


class OptionUse(Enum):
    """What becomes of an option."""

    TAKEN = "taken"
    MEANINGLESS = "meaningless"
    TO_CHECK = "to check"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SlurmOption:
    """An option of sbatch or srun.

    Attributes:
        name: the long one, with its dashes.
        value: "=" it needs one, "[=]" it may have one, "" it has none.
        use: what becomes of it.
        text: why it means nothing here, what to check, or what to do instead.
    """

    name: str
    value: str
    use: OptionUse
    text: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """An option as it is given; `where` names the line, `written` is the option as people wrote it."""

    option: SlurmOption
    value: str
    where: str

    @property
    def written(self) -> str:
        """Return the option with its value, for people."""
        return f"{self.option.name}={self.value}" if self.value else self.option.name


# Names that both commands know: `--long` or `--long/x`, then `=` or `[=]`.
_TAKEN = (
    "--nodes/N= --ntasks/n= --ntasks-per-node= --gpus/G= --gpus-per-node= --gpus-per-task= --gres= --gpu-bind= "
    "--cpus-per-task/c= --time/t= --job-name/J= --chdir/D= --export= --container-image= --container-workdir= "
    "--container-mounts="
)
_NODE_TO_ITSELF = "each worker has a node to itself, with all of its processors and memory"
_MEANINGLESS = {
    _NODE_TO_ITSELF: (
        "--exclusive[=] --mem= --mem-per-cpu= --mem-per-gpu= --mincpus= --tmp= --cpus-per-gpu= --oversubscribe/s "
        "--overcommit/O --overlap --exact --whole --contiguous --spread-job --use-min-nodes --core-spec/S= "
        "--thread-spec= --wait-all-nodes= --no-kill/k[=]"
    ),
    "the kubelet binds processes, memory and devices": (
        "--cpu-bind= --mem-bind= --hint= --distribution/m= --extra-node-info/B= --sockets-per-node= "
        "--cores-per-socket= --threads-per-core= --accel-bind= --gres-flags= --gpu-freq= --cpu-freq= "
        "--propagate[=] --network= --bcast[=] --tres-bind= --tres-per-task="
    ),
    "no job has a time limit: it runs until its program ends, or kubectl muster cancel ends it": (
        "--time-min= --deadline="
    ),
    "no signal comes: the program saves every so many steps, and a planned stop waits for a save": "--signal=",
    "Muster restarts a job after each failure of a node (spec.recovery)": "--requeue --no-requeue --auto-resume=",
    "kubectl muster logs JOB shows what ranks print, each line with its worker": (
        "--output/o= --error/e= --input/i= --open-mode= --label/l --unbuffered/u --quiet/Q --verbose/v"
    ),
    "all jobs wait in Muster's own queue, by priority and age (docs/queueing.md)": (
        "--account/A= --clusters/M= --cluster= --wckey= --immediate/I[=]"
    ),
    "nodes are chosen by spec.template.spec.nodeSelector, and all jobs wait in one queue": "--partition/p=",
    "the queue counts nodes, and nothing else": "--licenses/L=",
    "no mail is sent: kubectl muster top and an alert show what needs attention": "--mail-type= --mail-user=",
    "an attempt starts on every node or on none, and a rank that fails ends it": (
        "--kill-on-bad-exit/K[=] --disable-status/X --delay-boot= --reboot --slurmd-debug= --mpi="
    ),
    "kubectl muster report accounts for a job by itself": (
        "--acctg-freq= --profile= --power= --comment= --extra= --mcs-label= --admin-comment="
    ),
    "the image is the container, and the pod its limits": (
        "--container-mount-home --no-container-mount-home --container-name= --container-writable --container-readonly "
        "--container-remap-root --no-container-remap-root --container-save= --container-env= --no-container-entrypoint "
        "--container-entrypoint --get-user-env[=] --uid= --gid= --jobid= --preserve-env/E --ignore-pbs --parsable "
        "--compress[=] --pty[=]"
    ),
}
_TO_CHECK = {
    "nodes are chosen by spec.template.spec.nodeSelector, affinity and tolerations": (
        "--constraint/C= --prefer= --reservation="
    ),
    "spec.template.spec.priorityClassName orders the queue": "--nice[=] --priority=",
    "spec.placement.avoidNodes has the names of such nodes": "--exclude/x=",
    "a level of the topology is chosen by spec.placement.required": "--switches=",
    "spec.template.spec.priorityClassName orders the queue; a preemptible QOS is spec.queueing.preemptible": "--qos/q=",
}
_REFUSED = {
    "write one job for each, or let a workflow engine create them": "--array/a=",
    "no job waits for another: submit it when the other has succeeded (submit --wait)": "--dependency/d=",
    "Muster chooses nodes, and avoids unhealthy ones: take it out": "--nodelist/w= --nodefile/F= --relative/r=",
    "take it out: one program runs on all nodes of a gang": "--multi-prog --het-group= --pack-group=",
    "write --ntasks-per-node in its place": (
        "--ntasks-per-gpu= --ntasks-per-core= --ntasks-per-socket= --gpus-per-socket="
    ),
    "no job starts at a time: submit it then": "--begin/b=",
    "write the variables into --export, or into the script": "--export-file=",
    "there is no burst buffer: write a claim, by kubectl muster submit --volume PATH=CLAIM": "--bb= --bbf=",
    "name an image by --image": "--container= --container-id=",
    "write it into the script": "--prolog= --epilog= --task-prolog= --task-epilog= --wrap=",
}
# What only one of the two knows, or what means something else to it.
_OF_SBATCH = (
    ("--hold/H", OptionUse.TAKEN, ""),
    ("--segment=", OptionUse.TAKEN, ""),
    ("--wait/W", OptionUse.MEANINGLESS, "kubectl muster submit --wait waits"),
    ("--test-only", OptionUse.REFUSED, "kubectl muster submit --dry-run asks the API server"),
)
_OF_SRUN = (
    ("--time/t=", OptionUse.MEANINGLESS, "no step has a time limit"),
    ("--wait/W=", OptionUse.MEANINGLESS, "a rank that fails ends the attempt"),
    ("--threads/T=", OptionUse.MEANINGLESS, "each worker has its own launcher"),
)


def _options(rows: Sequence[tuple[str, OptionUse, str]]) -> dict[str, SlurmOption]:
    table: dict[str, SlurmOption] = {}
    for names, use, text in rows:
        for entry in names.split():
            value = "[=]" if entry.endswith("[=]") else "=" if entry.endswith("=") else ""
            name, _, letter = entry.removesuffix(value).partition("/")
            table[name] = SlurmOption(name, value, use, text)
            if letter:
                table[f"-{letter}"] = table[name]
    return table


_OF_BOTH = (
    (_TAKEN, OptionUse.TAKEN, ""),
    *((names, OptionUse.MEANINGLESS, text) for text, names in _MEANINGLESS.items()),
    *((names, OptionUse.TO_CHECK, text) for text, names in _TO_CHECK.items()),
    *((names, OptionUse.REFUSED, text) for text, names in _REFUSED.items()),
)
SBATCH = _options((*_OF_BOTH, *_OF_SBATCH))
SRUN = _options((*_OF_BOTH, *_OF_SRUN))


def read_options(words: Sequence[str], table: Mapping[str, SlurmOption], where: str) -> tuple[list[Given], int]:
    """Read the options that a command's words begin with, as getopt_long does.

    Args:
        words: behind the program's name.
        table: SBATCH or SRUN.
        where: the line, for people.

    Returns:
        The options, and the index of the first word that is none.

    Raises:
        RefusedError: an option is unknown, or lacks its value.
    """
    listed: list[Given] = []
    place = 0
    while place < len(words) and words[place].startswith("-") and words[place] != "-":
        word = words[place]
        place += 1
        if word == "--":
            break
        for option, value in _split(word, table, where):
            if value is None and option.value == "=":
                if place >= len(words):
                    raise RefusedError(f"{where}: {option.name}: it needs a value: write one")
                value, place = words[place], place + 1
            listed.append(Given(option, value or "", where))
    return listed, place


def _split(word: str, table: Mapping[str, SlurmOption], where: str) -> Iterator[tuple[SlurmOption, str | None]]:
    """Yield the options of one word: `-lK1` has several; the value is None where it may follow."""
    if word.startswith("--"):
        name, sign, value = word.partition("=")
        yield _long(name, table, where), value if sign else None
        return
    letters = word[1:]
    while letters:
        option = table.get(f"-{letters[0]}")
        if option is None:
            raise RefusedError(f"{where}: -{letters[0]}: Slurm has no such option here: take it out")
        letters = letters[1:]
        if option.value:
            yield option, letters.removeprefix("=") or None
            return
        yield option, None


def _long(name: str, table: Mapping[str, SlurmOption], where: str) -> SlurmOption:
    """Return an option by its name, or by the beginning of it that no other one has."""
    if name in table:
        return table[name]
    if name == "--tasks-per-node":
        return table["--ntasks-per-node"]
    matching = [option for written, option in table.items() if written.startswith(name) and written.startswith("--")]
    if len(matching) != 1:
        raise RefusedError(f"{where}: {name}: it is not known what it means here: take it out")
    return matching[0]
