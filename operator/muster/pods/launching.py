"""What Muster says about how a job's program is started: what it overrides in the template, and who starts processes.
Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.pods import exit_codes, started_again
from muster.pods.objects import objects
from muster.pods.warned import Warned
from muster.pods.worker_pod import (
    CLUSTER_DNS,
    CLUSTER_DNS_ON_HOST,
    POD_DEADLINE,
    UNUSED_PROBES,
    misses_cluster_dns,
    worker_container,
)
from muster.protocol.contract import IDENTITY, PLAIN_IDENTITY
from muster.protocol.resuming import BY_NAME
from muster.protocol.shell_words import SHELLS
from muster.protocol.starters import (
    ACCELERATE,
    COMPOSER,
    DEEPSPEED,
    FABRIC,
    LONGEST_LINE,
    PYTHON,
    TORCHRUN,
    TUNE,
    WRAPPERS,
    commands_of,
    option,
    programs,
    shell_line,
    starter_of,
)

# How scripts take a node's rank from the end of its pod's name, where others have it.
_OF_HOST_NAME = re.compile(
    r"\$\{HOSTNAME(?:##|%%|[#%/:])[^}]{0,64}\}|\$\(hostname\b[^)|]{0,64}\|[^)]{0,256}\)|`hostname\b[^`|]{0,64}\|[^`]{0,256}`"
)
_NUMBER = re.compile("[0-9]{1,9}")
_ONE_PROCESS = frozenset(BY_NAME["MaxText"].programs)


NODES_TRAIN_ALONE = "NodesTrainAlone"
NODES_CANNOT_MEET = "NodesCannotMeet"
LAUNCHER_UNFIT = "LauncherUnfit"
STARTER_RESTARTS_RANKS = "StarterRestartsRanks"
PROCESSES_UNCLEAR = "ProcessesUnclear"
EXIT_CODE_HIDDEN = "ExitCodeHidden"
CANNOT_START_AGAIN = "CannotStartAgain"


def start_warnings(job: TrainingJob) -> list[Warned]:
    """Return what a reader of the job's status should know of how the program is started."""
    container = worker_container(job) or {}
    command = command_of(container)
    warnings = [_overridden(job, container), *_unused(job, container), _exit_code(command)]
    if job.spec.launch.mode is LaunchMode.MANAGED:
        elsewhere = _elsewhere(job, command)
        warnings.append(_once_only(command))
        warnings += (
            [elsewhere] if elsewhere else [*_of_starters(job, command, container), _processes(job, command, container)]
        )
    return [warned for warned in warnings if warned is not None]


def start_text(job: TrainingJob) -> str:
    """Return `start_warnings` as one text; "" if there are none."""
    return "; ".join(warned.message for warned in start_warnings(job))


def _variables(container: Mapping[str, Any]) -> set[str]:
    return {str(variable.get("name")) for variable in objects(container, "env")}


def _overridden(job: TrainingJob, container: Mapping[str, Any]) -> Warned | None:
    managed = job.spec.launch.mode is LaunchMode.MANAGED
    theirs = sorted(_variables(container) & (IDENTITY if managed else PLAIN_IDENTITY))
    if not theirs:
        return None
    when = "at each start" if managed else "in each pod"
    return Warned("", f"Muster sets {', '.join(theirs)} {when}: what the template's env says of them is not used")


def _unused(job: TrainingJob, container: Mapping[str, Any]) -> list[Warned]:
    """Return what the pod of a worker ignores or changes of the template."""
    spec = job.spec.pod
    messages: list[str] = []
    if misses_cluster_dns(spec):
        messages.append(
            f"dnsPolicy is {CLUSTER_DNS_ON_HOST}: with hostNetwork, {CLUSTER_DNS} would not find names of the cluster"
        )
    if spec.get(POD_DEADLINE):
        messages.append(
            f"{POD_DEADLINE} is not used: it would end each pod at a time of its own, and the gang with it; "
            "spec.suspend stops a job, and kubectl delete ends it"
        )
    probes = [probe for probe in UNUSED_PROBES if container.get(probe)]
    if probes and job.spec.launch.mode is LaunchMode.MANAGED:
        messages.append(
            f"{' and '.join(probes)} of container {container.get('name')} are not used, since the program does not "
            "run while the gang waits: spec.progress.stepTimeoutSeconds finds what hangs"
        )
    return [Warned("", message) for message in messages]


def command_of(container: Mapping[str, Any]) -> list[str]:
    """Return the command and arguments of a container as one list; a field that is no list counts as empty."""
    parts = (container.get("command"), container.get("args"))
    return [str(word) for part in parts if isinstance(part, list) for word in part]


def is_shell_line(command: Sequence[str]) -> bool:
    """Whether the command is a shell with a line to run, so that words after it do not reach the program."""
    return shell_line(command) is not None


def _exit_code(command: Sequence[str]) -> Warned | None:
    hidden = exit_codes.hidden_exit_code(command)
    return None if hidden is None else Warned(EXIT_CODE_HIDDEN, exit_codes.message(hidden))


def _once_only(command: Sequence[str]) -> Warned | None:
    failing = started_again.ends_at_second_start(command)
    return Warned(CANNOT_START_AGAIN, started_again.message(failing)) if failing else None


def _of_starters(job: TrainingJob, command: list[str], container: Mapping[str, Any]) -> list[Warned | None]:
    """Return what should be known of programs that start processes, also of those in a shell's line."""
    warnings: list[Warned | None] = [
        Warned(
            NODES_CANNOT_MEET,
            f"{word} is no rank: the end of a pod's name counts its replacements. Where the line needs the number of "
            "the node, write $NODE_RANK",
        )
        for word in _OF_HOST_NAME.findall((shell_line(command) or "")[:LONGEST_LINE])[:1]
    ]
    if len(shell_line(command) or "") > LONGEST_LINE:
        warnings.append(
            Warned(
                "",
                f"the shell's line has more than {LONGEST_LINE} characters, so what it starts is not looked into: "
                "where composer starts several processes, write the line into a file of the image that ends in a "
                "plain one",
            )
        )
    starters = commands_of(command)
    for words in starters:
        name = starter_of(words)
        warnings.append(_restarting(name, words, container))
        alone = _of_torchrun(job, words, container) if name == TORCHRUN else None
        if job.spec.nodes > 1 and name in _ALONE:
            alone = _ALONE[name](job, words, _variables(container))
        # Of several in a shell's line one may be for a single node only, or behind a condition.
        warnings.append(replace(alone, holds=alone.holds and len(starters) == 1) if alone else None)
        if job.spec.nodes > 1:
            warnings.append(_written_out(job, name, words))
        if job.spec.launch.processes_per_node > 1:
            warnings.append(
                Warned(
                    PROCESSES_UNCLEAR,
                    f"{name} starts processes by itself, and launch.processesPerNode starts it "
                    f"{job.spec.launch.processes_per_node} times on each node: leave that at 1",
                )
            )
    return [*dict.fromkeys(warnings)]


def _elsewhere(job: TrainingJob, command: Sequence[str]) -> Warned | None:
    """Return the warning of a program that starts ranks on other machines by ssh or Slurm; None: there is none."""
    for name in programs(command):
        if name == "srun":
            why = "asks Slurm for its nodes, and there is none here"
        elif name in _BY_SSH and job.spec.nodes > 1:
            why = (
                "starts ranks by ssh, which no pod here answers, or all on its own node, and so on each of "
                f"{job.spec.nodes}"
            )
        else:
            continue
        return Warned(
            LAUNCHER_UNFIT,
            f"{name} {why}: start the program with torchrun in its place, or by itself with "
            "spec.launch.processesPerNode",
        )
    return None


# MPI's, and what is built on it.
_BY_SSH = frozenset(("mpirun", "mpiexec", "orterun", "prterun", "horovodrun"))


def _written_out(job: TrainingJob, starter: str, command: Sequence[str]) -> Warned | None:
    """Return the warning of options that give each node the same rank or address, where they have to differ; None:
    there are none."""
    names = _WHO.get(starter, {})
    if starter == ACCELERATE and (option(command, "--rdzv-backend") or "static") != "static":
        names = {"--main-process-ip": names["--main-process-ip"]}  # ranks come of the rendezvous
    given = {name: option(command, name) for name in names}
    literals = {name: value for name, value in given.items() if value is not None and "$" not in value}
    if not literals:
        return None
    return Warned(
        NODES_CANNOT_MEET,
        f"{starter} {', '.join(f'{name}={value}' for name, value in literals.items())} is the same on each of "
        f"{job.spec.nodes} nodes, so that they would not find each other: write "
        f"{' '.join(f'{name}={names[name]}' for name in literals)}",
    )


_WHO = {
    ACCELERATE: {"--machine-rank": "$(NODE_RANK)", "--main-process-ip": "$(MASTER_ADDR)"},
    COMPOSER: {"--node-rank": "$(NODE_RANK)", "--master-addr": "$(MASTER_ADDR)"},
    DEEPSPEED: {"--node-rank": "$(NODE_RANK)"},
    FABRIC: {"--node-rank": "$(NODE_RANK)", "--main-address": "$(MASTER_ADDR)"},
}


def _given(container: Mapping[str, Any], command: Sequence[str], name: str) -> str | None:
    """Return the value of a torchrun option: from the command, else from the container's PET_ variable; None:
    neither."""
    variable = "PET_" + name[2:].replace("-", "_").upper()
    listed = {str(entry.get("name")): str(entry.get("value", "")) for entry in objects(container, "env")}
    value = option(command, name)
    return value if value is not None else listed.get(variable)


def _number(written: str) -> int:
    """Return the number of an option; 0 where it is none, or one that no starter takes."""
    return int(written) if _NUMBER.fullmatch(written) else 0


def _restarting(starter: str, command: Sequence[str], container: Mapping[str, Any]) -> Warned | None:
    """Return the warning of an option by which the starter restarts ranks itself, without Muster; None: there is
    none."""
    if starter not in (TORCHRUN, ACCELERATE, TUNE):
        return None  # only these hand the option to torchrun
    name = "--max-restarts"
    restarts = option(command, name) if starter == ACCELERATE else _given(container, command, name)
    if restarts is None or not _number(restarts):
        return None
    return Warned(
        STARTER_RESTARTS_RANKS,
        f"{starter} {name}={restarts} starts ranks again by itself, from where this attempt began and not from what "
        "was saved since: take it out, Muster starts them again",
    )


def _of_torchrun(job: TrainingJob, command: Sequence[str], container: Mapping[str, Any]) -> Warned | None:
    """Return the warning of options of torchrun that override Muster's variables and separate the nodes; None: there
    are none."""
    given = partial(_given, container, command)
    parting = _parting(job.spec.nodes, command, given) if job.spec.nodes > 1 else []
    if not parting:
        return None
    alone = any(word == "--standalone" or _IS_ONE_NODE.fullmatch(word) for word in parting)
    return Warned(
        NODES_TRAIN_ALONE if alone else NODES_CANNOT_MEET,
        f"torchrun {', '.join(parting)} counts in place of what Muster sets, so that the {job.spec.nodes} nodes "
        f"would {'each train alone' if alone else 'not find each other'}: take it out, the PET_ variables say where "
        "they are",
        holds=alone,
    )


_IS_ONE_NODE = re.compile(r"--nnodes=(1:)?1")


def _parting(nodes: int, command: Sequence[str], given: Callable[[str], str | None]) -> list[str]:
    """Return the options of a torchrun with which it would not meet the other nodes, as written.

    Options whose value is a variable are not judged.

    Args:
        nodes: of the job.
        command: that starts torchrun.
        given: returns the value of an option; None: not given.
    """
    if given("--standalone") not in (None, "0"):
        return ["--standalone"]
    count, rank, master = (option(command, name) for name in ("--nnodes", "--node-rank", "--master-addr"))
    backend, endpoint = given("--rdzv-backend") or "static", given("--rdzv-endpoint")
    options = []
    if count is not None and "$" not in count and count.rpartition(":")[2] != str(nodes):
        most = count.rpartition(":")[2]
        # The static one waits for the most that are named, any other for some more, and goes on without them.
        if backend == "static" or not (":" in count and _number(most) > nodes):
            options.append(f"--nnodes={count}")
    if rank is not None and "$" not in rank and backend == "static":
        options.append(f"--node-rank={rank}")
    if master is not None and "$" not in master and backend == "static" and not endpoint:
        options.append(f"--master-addr={master}")
    if endpoint and "$" not in endpoint and not backend.startswith("etcd"):
        options.append(f"--rdzv-endpoint={endpoint}")
    return options


def _accelerate_alone(job: TrainingJob, command: Sequence[str], _variables: set[str]) -> Warned | None:
    """Return the warning of an accelerate that would train on each node alone; None: it would not.

    Its launcher for several GPUs is torchrun's and reads the PET_ variables, unless a number of machines is given. Its
    other launchers do not.
    """
    gpus = job.spec.gpus_per_node
    if option(command, "--machine-rank") is not None or option(command, "--config-file") is not None:
        return None
    if (option(command, "--rdzv-backend") or "static") != "static":
        return None  # ranks come of the rendezvous
    machines = option(command, "--num-machines") or "1"
    several = gpus > 1 or any(option(command, name) is not None for name in _ON_SEVERAL)
    if machines == "1" and several and option(command, "--cpu") is None:
        processes = option(command, "--num-processes") or ""
        if _number(processes) > gpus > 0:
            return Warned(
                PROCESSES_UNCLEAR,
                f"accelerate launch without --num_machines starts --num_processes on each node, which has {gpus} "
                f"GPUs and not {processes}: write --num_processes={gpus}",
            )
        return None
    total = job.spec.nodes * max(gpus, 1)
    why = "each node would train alone" if machines == "1" else "no node would know its rank"
    return Warned(
        NODES_TRAIN_ALONE if machines == "1" else NODES_CANNOT_MEET,
        f"accelerate launch as it stands reads no variables, so {why}: add --num_machines=$(NNODES) "
        "--machine_rank=$(NODE_RANK) --main_process_ip=$(MASTER_ADDR) --main_process_port=$(MASTER_PORT) "
        f"--num_processes={total}, or start the program with torchrun",
    )


def _deepspeed_alone(job: TrainingJob, command: Sequence[str], variables: set[str]) -> Warned | None:
    if option(command, "--no-ssh") is not None:
        return None
    if option(command, "--hostfile", "-H") is not None:
        return Warned(
            NODES_CANNOT_MEET,
            "deepspeed with a hostfile reaches the others by ssh, from each node, under names that no pod here has: "
            "start the program with torchrun in its place",
        )
    return Warned(
        NODES_TRAIN_ALONE,
        "deepspeed without a hostfile knows one node, so each node would train alone: start the program with torchrun "
        "in its place",
        holds="DLTS_HOSTFILE" not in variables and not _has_mount(job, "/job"),  # where deepspeed looks for one
    )


def _has_mount(job: TrainingJob, path: str) -> bool:
    """Whether a volume of the container that trains is mounted at a path or below it."""
    mounts = objects(worker_container(job) or {}, "volumeMounts")
    return any(f"{mount.get('mountPath')}/".startswith(f"{path}/") for mount in mounts)


def _fabric_alone(job: TrainingJob, command: Sequence[str], _variables: set[str]) -> Warned | None:
    if option(command, "--node-rank") is not None:
        return None
    return Warned(
        NODES_TRAIN_ALONE,
        "fabric run reads no variables, so each node would train alone: add --num-nodes=$(NNODES) "
        "--node-rank=$(NODE_RANK) --main-address=$(MASTER_ADDR) --main-port=$(MASTER_PORT) "
        f"--devices={max(job.spec.gpus_per_node, 1)}, or start the program with torchrun",
        holds=True,
    )


def _tune_alone(_: TrainingJob, command: Sequence[str], variables: set[str]) -> Warned | None:
    if option(command, "--rdzv-endpoint") is not None or "PET_RDZV_ENDPOINT" in variables:
        return None
    return Warned(
        NODES_TRAIN_ALONE,
        "tune run without a rendezvous endpoint starts on each node alone: add "
        "--rdzv-endpoint=$(MASTER_ADDR):$(MASTER_PORT) before the name of the recipe",
        holds=True,
    )


_ALONE = {ACCELERATE: _accelerate_alone, DEEPSPEED: _deepspeed_alone, FABRIC: _fabric_alone, TUNE: _tune_alone}
# By any of these accelerate takes its launcher for several GPUs.
_ON_SEVERAL = ("--multi-gpu", "--use-fsdp", "--use-deepspeed", "--use-megatron-lm")


def _processes(job: TrainingJob, command: list[str], container: Mapping[str, Any]) -> Warned | None:
    gpus, starters = job.spec.gpus_per_node, commands_of(command)
    if gpus < 2 or job.spec.launch.processes_per_node != 1:
        return None
    for words in starters:
        chosen = "PET_NPROC_PER_NODE" in _variables(container) or option(words, "--nproc-per-node") is not None
        if starter_of(words) == TORCHRUN and not chosen:
            message = f"torchrun starts {gpus} processes on each node, one for each GPU (PET_NPROC_PER_NODE)"
            if not _ON_CPU.intersection(word.rpartition("=")[2] for word in words):
                return Warned("", message)
            return Warned(
                PROCESSES_UNCLEAR,
                f"{message}, and the command names a CPU: where the job has no GPUs, set spec.gpusPerNode to 0, and "
                "--nproc-per-node to the number of processes",
            )
    if starters or any(word in _ONE_PROCESS for word in command):
        return None  # it starts one for each GPU by itself; JAX gives one process all GPUs of its node
    names = [word.rsplit("/", 1)[-1] for word in command]
    if not names or is_shell_line(command) or names[0] in SHELLS or names[0].endswith(".sh"):
        return None  # what else a shell does is not looked into
    if (
        names[0].endswith(".py")
        or PYTHON.match(names[0])
        or (names[0] in WRAPPERS and any(PYTHON.match(name) or name.endswith(".py") for name in names))
    ):
        return Warned(
            PROCESSES_UNCLEAR,
            f"one process on each node has its {gpus} GPUs: where each process uses one, set launch.processesPerNode "
            f"to {gpus}, or start the program with torchrun",
        )
    return Warned(
        "",
        f"{names[0]} is started once on each node, and has its {gpus} GPUs: where it starts a process for each, "
        "pass it $(NNODES), $(NODE_RANK) and $(MASTER_ADDR) to find the other nodes, else set launch.processesPerNode "
        f"to {gpus}",
    )


_ON_CPU = frozenset({"cpu", "gloo"})  # values of options of programs that train without GPUs
