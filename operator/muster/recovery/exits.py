"""Which pods and ranks have ended, and how, as pods and launchers report it. Pure.

Tests: tests/unit/recovery/test_failures.py.
"""

import re
import signal
from dataclasses import replace

from muster.api.gang import GangSpec, Level
from muster.api.goodput import MAX_STEP
from muster.protocol.messages import RankReport
from muster.recovery.ended_well import raised_at_the_end
from muster.recovery.failure import ORDER_ERROR_SECONDS, Failure, Kind, failure_of
from muster.recovery.last_lines import Cause, cause_of, is_killed, is_of_program, last_error
from muster.world.job import JobWorld, WorkerView
from muster.world.redact import without_secrets
from muster.world.views import SCHEDULER_NAME, ContainerView, PodView, RankView

LAST_LINES_FOLLOW = "; its last lines: "
"""The text in a message between what was seen and what the rank or container printed last."""
BETWEEN_LINES = " | "
LAST_LINES = 5
LAST_LINES_CHARS = 600
KUBELET_REJECTIONS = re.compile(
    r"^(OutOf.*|NodeAffinity|NodePorts|UnexpectedAdmissionError|NodeShutdown|Terminated|TopologyAffinityError)$"
)
# What kubelets say of a container of which they find no trace or no exit status, as after a reboot.
NOT_SEEN = ("Unknown", "ContainerStatusUnknown")
# What runc and crun say when the command is not in the image: no other node would do better. A mount that fails with
# "no such file or directory" is the node's affair.
COMMAND_NOT_FOUND = re.compile(
    r"exec: .*(executable file not found|no such file or directory|permission denied)|executable file .*not found",
    re.IGNORECASE,
)


# How the launcher ends when the image's Python will not do, and what its last line is then
# (muster.node.launcher.__main__).
UNFIT_PYTHON_CODE = 78
UNFIT_PYTHON = re.compile(r"muster: ([^\n]*Python[^\n]*)\s*$")
PYTHON_REMEDY = (
    "Put python3 (3.8 or later, with its standard library) on the PATH of the image, or set spec.launch.mode to Plain"
)
_KILLED_CODE = 128 + signal.SIGKILL  # of the shell that ran it
OUT_OF_MEMORY_REMEDY = (
    "Give the container more memory (resources.limits.memory), or let the program use less, as with fewer DataLoader "
    "workers. Files in /dev/shm count, too"
)


def pod_ended(worker_view: WorkerView, *, managed: bool) -> Failure | None:
    """Return the failure of a worker whose pod, or the container that trains, has ended; None: neither has.

    Args:
        worker_view: the worker.
        managed: whether a launcher runs in front of the command.
    """
    pod = worker_view.pod
    if pod is None or not worker_view.over:
        return None
    if KUBELET_REJECTIONS.match(pod.reason):
        message = f"the kubelet of {worker_view.member.node} rejected pod {pod.name}: {pod.reason}: {pod.message}"
        # Muster bound the pod by its own count of the node's resources, and another pod was faster.
        kind = Kind.NODE_CONFLICT if pod.scheduler == SCHEDULER_NAME else Kind.POD_REJECTED
        return failure_of(worker_view, kind, Level.REPLACE, message)
    # Without an age: the kubelet tells it when the containers have ended, and peers that failed by it did so before.
    if pod.reason in ("Evicted", "Preempting", "PreemptionByScheduler"):
        return failure_of(worker_view, Kind.EVICTED, Level.POD, f"pod {pod.name}: {pod.reason}: {pod.message}")
    container = _culprit(worker_view, pod)
    if pod.deleting and (container is None or container.terminated_reason != "OOMKilled"):
        return failure_of(worker_view, Kind.POD_DELETED, Level.POD, f"pod {pod.name} was deleted")
    if container is None:
        return failure_of(
            worker_view, Kind.POD_ENDED, Level.POD, f"pod {pod.name} ended: {pod.reason} {pod.message}".strip()
        )
    if container.terminated_reason in ("StartError", "ContainerCannotRun") and COMMAND_NOT_FOUND.search(
        container.terminated_message
    ):
        return _start_failed(worker_view, pod, container, container.terminated_message, in_front=managed)
    unfit = UNFIT_PYTHON.search(container.terminated_message)
    if unfit and managed and _trains(worker_view, container) and container.exit_code == UNFIT_PYTHON_CODE:
        return _start_failed(worker_view, pod, container, unfit.group(1), in_front=True)
    if container.terminated_reason in NOT_SEEN:
        return failure_of(worker_view, Kind.CONTAINER_LOST, Level.POD, _how_it_was_lost(worker_view, pod, container))
    message = (
        f"container {container.name} of pod {pod.name} ended with code {container.exit_code} "
        f"({container.terminated_reason})"
    )
    kind = Kind.POD_ENDED
    if container.terminated_reason == "OOMKilled":
        kind, message = Kind.OUT_OF_MEMORY, f"{message}: the kernel killed it for its memory. {OUT_OF_MEMORY_REMEDY}"
    printed = container.terminated_message if container.exit_code else ""
    ended = failure_of(worker_view, kind, Level.POD, message)
    killed = is_killed(container.exit_code, None)
    return replace(ended, exit_code=container.exit_code, killed=killed, printed=printed)


def has_crashed(rank: RankReport) -> bool:
    """Whether a rank has ended by a fault or an exception of its own, or was killed: it has not chosen its exit code.

    Programs that save and leave upon SIGTERM may end by it, and one whose peer has left already may lose it.
    """
    is_of_child = rank.failed_exit_code is not None or rank.failed_signal is not None
    code = rank.failed_exit_code if is_of_child else rank.exit_code
    by_signal = rank.failed_signal if is_of_child else rank.signal
    number = by_signal if by_signal is not None else (code or 0) - 128  # as a shell ends
    if number > 0:
        return number != signal.SIGTERM
    return bool(code and last_error(rank.tail)) and cause_of(rank.tail, code, None) is not Cause.LOST_PEER


def _trains(worker_view: WorkerView, container: ContainerView) -> bool:
    return worker_view.container is not None and container.name == worker_view.container.name and not container.init


def _start_failed(
    worker_view: WorkerView, pod: PodView, container: ContainerView, why: str, *, in_front: bool
) -> Failure:
    """Return the failure of a container that can start on no node, with what the user has to correct.

    Args:
        worker_view: the worker.
        pod: of the worker.
        container: of the pod, the one that cannot start.
        why: the reason, for the message.
        in_front: whether a launcher runs in front of the command of the container that trains.
    """
    problem_text = f"container {container.name} of pod {pod.name} cannot start: {why}"
    kind = "initContainers" if container.init else "containers"
    remedy = (
        PYTHON_REMEDY
        if in_front and _trains(worker_view, container)
        else f"Correct its command in spec.template.spec.{kind}, or take an image that has it"
    )
    message = f"{problem_text}. {remedy}; then delete the job and create it again"
    return replace(failure_of(worker_view, Kind.START_FAILED, Level.POD, message), exit_code=container.exit_code)


def _how_it_was_lost(worker_view: WorkerView, pod: PodView, container: ContainerView) -> str:
    member, boot_id = worker_view.member, worker_view.node.boot_id if worker_view.node else ""
    rebooted = member.boot_id and boot_id and not boot_id.startswith(member.boot_id)
    why = (
        "has rebooted"
        if rebooted
        else "does not know how it ended, as after a reboot or a crash of its container runtime"
    )
    code = f"code {container.exit_code}, {container.terminated_reason}"
    return f"container {container.name} of pod {pod.name} was lost: node {member.node} {why} ({code})"


def _culprit(worker_view: WorkerView, pod: PodView) -> ContainerView | None:
    """Return the container whose end explains the end of the pod; None: no container has ended.

    It is the one that trains, unless another has failed and taken the pod with it.
    """
    if (
        worker_view.container is not None
        and worker_view.container.terminated
        and (worker_view.container.exit_code or not pod.terminal)
    ):
        return worker_view.container
    ended = [container for container in pod.containers if container.terminated]
    return next((c for c in ended if c.exit_code), ended[-1] if ended else None)


def late_rank_failures(world: JobWorld, attempt: int) -> list[Failure]:
    """Return the rank failures of an attempt that is over, as far as launchers still report them."""
    failures = []
    for worker_view in world.worker_views:
        view = worker_view.launcher
        if view is None or attempt not in (view.attempt, view.previous_attempt):
            continue
        ranks = view.ranks if view.attempt == attempt else view.previous_ranks
        failure = rank_failed(ranks, worker_view, world.fleet.node_fault(worker_view.member.node))
        if failure:
            failures.append(failure)
    return failures


def find_fenced_worker(world: JobWorld, attempt: int) -> WorkerView | None:
    """Return a worker whose launcher ended its ranks in this attempt because it heard nothing from Muster; None: none
    did."""
    for worker_view in world.worker_views:
        view = worker_view.launcher
        if view is not None and (attempt, True) in (
            (view.attempt, view.fenced),
            (view.previous_attempt, view.previous_fenced),
        ):
            return worker_view
    return None


def count_own_failures(world: JobWorld, index: int, attempt: int) -> int:
    """Return how many ranks of a worker failed in an attempt for another cause than a lost peer; 0 if none is reported.

    Args:
        world: the state of the job.
        index: of the worker.
        attempt: its number.
    """
    view = world.by_index[index].launcher
    if view is None or attempt not in (view.attempt, view.previous_attempt):
        return 0
    ranks = view.ranks if view.attempt == attempt else view.previous_ranks
    return sum(_first_failed_rank(rank) and _cause(rank) is not Cause.LOST_PEER for rank in ranks)


def rank_failed(ranks: tuple[RankReport, ...], worker_view: WorkerView, node_fault: str) -> Failure | None:
    """Return the failure of the worker's rank that failed first, as its launcher reports; None: no rank failed.

    Among ranks that failed together, one that has not lost a peer comes first, and among these one that was killed.

    Args:
        ranks: of one attempt, from the launcher's report.
        worker_view: the worker.
        node_fault: what is wrong with its node; "" if nothing is known.
    """
    failed = [rank for rank in ranks if _first_failed_rank(rank)]
    if not failed:
        return None
    causes = [rank for rank in failed if _cause(rank) is not Cause.LOST_PEER] or failed
    oldest = max(rank.exited_age_seconds or 0.0 for rank in causes)
    first = max(
        (rank for rank in causes if oldest - (rank.exited_age_seconds or 0.0) <= ORDER_ERROR_SECONDS),
        key=lambda rank: (_cause(rank) is Cause.KILLED, rank.exited_age_seconds or 0.0),
    )
    cause = _cause(first)
    by_code, by_signal = _ending(first)
    how = f"{_name_of(first, worker_view)} {_how_it_ended(by_code, by_signal)}"
    if _is_out_of_memory(first):
        gibibytes = (first.memory_limit_bytes or 0) / 2**30
        how += f": its container reached its memory limit of {gibibytes:.1f} GiB. {OUT_OF_MEMORY_REMEDY}"
        node_fault = ""  # a healthy node would have done the same
    return Failure(
        Kind.OUT_OF_MEMORY if _is_out_of_memory(first) else Kind.RANK_FAILED,
        Level.REPLACE if node_fault else Level.IN_PLACE,
        worker_view.index,
        worker_view.member.node,
        how + (f" on an unhealthy node ({node_fault})" if node_fault else ""),
        rank=_number_of(first),
        exit_code=by_code,
        signal=by_signal,
        age_seconds=first.exited_age_seconds or 0.0,
        victim=cause is Cause.LOST_PEER,
        killed=cause is Cause.KILLED,
        own_exception=cause is Cause.EXCEPTION,
        node_fault=node_fault,
        if_free=bool(node_fault),
        printed="" if by_signal == signal.SIGKILL and cause is Cause.KILLED else first.tail,
    )


def message_of(world: JobWorld, failure: Failure) -> str:
    """Return the message of a failure with the last lines that the rank or container printed, without secrets.

    People who read Events, the status and the history of a job may not be allowed to read its logs.
    """
    lines = _last_lines(without_secrets(failure.printed, world.job.spec.containers)) if failure.printed else ""
    return failure.message + (LAST_LINES_FOLLOW + lines if lines else "")


def with_more(message: str, more: str) -> str:
    """Return the message of a failure with more of Muster's own words, before the last lines that the rank printed."""
    cause_text, follow, lines = message.partition(LAST_LINES_FOLLOW)
    return cause_text + more + follow + lines


def reported_cause(rank: RankReport) -> str:
    """Return what the last lines of a rank say of its end, to be kept with what its launcher has reported.

    That is why it ended by itself, or the exception before its end with code 0; "" = neither.
    """
    return _read_cause(rank) if _first_failed_rank(rank) else raised_before_success(rank)


def raised_before_success(rank: RankReport) -> str:
    """Return the exception whose traceback ends the last lines of a rank that ended with code 0; "" = there is none."""
    if rank.exit_code != 0 or not rank.tail:
        return ""
    return rank.cause if isinstance(rank, RankView) else raised_at_the_end(rank.tail)


def _cause(rank: RankReport) -> Cause:
    read = rank.cause if isinstance(rank, RankView) else ""
    return Cause(read) if read else _read_cause(rank)


def _read_cause(rank: RankReport) -> Cause:
    by_code, by_signal = _ending(rank)
    cause = cause_of(rank.tail, by_code, by_signal)
    if cause is Cause.OWN and by_signal is None and is_of_program(rank.tail):
        return Cause.EXCEPTION
    return cause


def _is_out_of_memory(rank: RankReport) -> bool:
    """Whether a rank, or a process that it needs, was killed because its container reached its memory limit."""
    code, by_signal = _ending(rank)
    if rank.memory_limit_bytes is None or _cause(rank) is not Cause.KILLED:
        return False
    return by_signal == signal.SIGKILL or code == _KILLED_CODE or not is_killed(code, by_signal)


def _ending(rank: RankReport) -> tuple[int | None, int | None]:
    """Return the exit code and the signal of a rank, or of the process that it names as the first that failed."""
    if rank.failed_exit_code is None and rank.failed_signal is None:
        return rank.exit_code, rank.signal
    return (None if rank.failed_signal is not None else rank.failed_exit_code), rank.failed_signal


def _number_of(rank: RankReport) -> int | None:
    """Return the number of the process that failed; None: it is one of those that a starter started, and not named."""
    if rank.failed_rank is not None:
        return rank.failed_rank
    return None if rank.starter or rank.failed_local_rank is not None else rank.rank


def _name_of(rank: RankReport, worker_view: WorkerView) -> str:
    """Return the name of what failed: the rank by the number that it has itself, or the program that starts ranks."""
    worker = f"worker {worker_view.index}"
    if rank.failed_rank is not None:
        return f"rank {rank.failed_rank} ({worker})"
    if rank.failed_local_rank is not None:
        return f"local rank {rank.failed_local_rank} ({worker})"
    return f"{rank.starter} on {worker}" if rank.starter else f"rank {rank.rank}"


def _first_failed_rank(rank: RankReport) -> bool:
    return (
        not rank.alive and not rank.ended_by_launcher and (rank.signal is not None or rank.exit_code not in (0, None))
    )


def _how_it_ended(by_code: int | None, by_signal: int | None) -> str:
    if by_signal is None:
        return f"exited with code {by_code}"
    try:
        return f"was ended by {signal.Signals(by_signal).name}"
    except ValueError:
        return f"was ended by signal {by_signal}"


def _last_lines(tail: str) -> str:
    """Return the last five lines as one text, short enough for an Event; when the text is cut, the last line is kept.

    An exception comes first where more was printed behind it.
    """
    lines = [line.strip() for line in tail.splitlines() if any(character.isalnum() for character in line)]
    text = BETWEEN_LINES.join(lines[-LAST_LINES:])[-LAST_LINES_CHARS:]
    error = last_error(tail)[: LAST_LINES_CHARS // 2]
    if not error or error in text:
        return text
    opening = f"{error}{BETWEEN_LINES}…"
    return opening + text[len(opening) - LAST_LINES_CHARS :]


def last_step_of(world: JobWorld, record: GangSpec, attempt: int) -> int | None:
    """Return the newest step of an ended attempt, as its remaining launchers report it; None without a report.

    They watch until its ranks are gone; Muster may have acted on the failure before their next report.
    """
    views = (v for v in world.views.values() if (v.attempt, v.previous_attempt) == (record.attempt, attempt))
    return max((min(v.previous_step, MAX_STEP) for v in views if v.previous_step is not None), default=None)
