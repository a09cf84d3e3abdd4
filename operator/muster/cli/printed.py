"""Choose the pods whose logs answer a question about a job, and the lines. Pure.

A pod outlives an attempt: ranks that restart in place continue to print to the same log. The launcher prints there when
an attempt begins, and the log is cut at that line. The record does not keep which pod ran an attempt that is over; that
line shows it, too.

Tests: tests/unit/cli/test_logs.py.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from muster.answers.explanation import OUTPUT_VERSION
from muster.answers.inquiry import split
from muster.api.base import ApiModel
from muster.api.gang import FaultClass, GangIncident, GangSpec, Role
from muster.api.trainingjob import Incident, TrainingJob
from muster.recovery.failure import is_hang
from muster.world.views import PodView

MAX_WORKERS = 16  # that are printed together
PRINTED_NOTHING = "it has printed nothing yet"
TAIL_OF_ONE, TAIL_OF_SEVERAL = 100, 10
MAX_CHARS = 4096  # of a line on a terminal
# As muster.node.launcher.supervisor writes it; on a line of its own, unless a rank has printed no end of its line.
_BEGINS = re.compile(r"muster: attempt (\d{1,10}): (?:ranks? \d+(?: to \d+)?|[a-z]{1,16} on node \d+) of \d+ starting")


class Remains(ApiModel):
    """The part of a lost log that the record of an incident has kept."""

    incident: int = Field(description="Its number: the attempt that it ended.")
    reason: str
    message: str
    last_lines: list[str] = Field([], description="Oldest first.")


class PodLog(ApiModel):
    """Output of one worker."""

    worker: int = Field(description="Index.")
    ranks: str = Field("", description="E.g. 8-15; empty: a spare, or not known.")
    node: str = ""
    pod: str = Field("", description="Empty: it has none any more.")
    state: str = Field("", description="Of the pod.")
    lines: list[str] = Field([], description="Oldest first.")
    omitted_lines: int = Field(0, description="Lines before these, of those that were read.")
    problem: str = Field("", description="Why there are no lines, or not all.")
    incidents: list[Remains] = Field([], description="Where there are no lines: what is left.")


class JobLogs(ApiModel):
    """Output of a job's workers."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["JobLogs"] = "JobLogs"
    name: str
    namespace: str
    attempt: int | None = Field(None, description="Only of this one; left out: of all that the pods have run.")
    logs: list[PodLog]
    notes: list[str] = Field([], description="What limits this answer.")


@dataclass(frozen=True, slots=True)
class LogRequest:
    """The lines that a user asks for."""

    rank: int | None = None
    failed: bool = False
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """One worker whose log answers the request."""

    index: int
    ranks: str
    node: str


class NothingAskedForError(Exception):
    """There is no such rank or attempt, or nothing has failed; the message says which."""


def wanted(job: TrainingJob, record: GangSpec | None, asked: LogRequest) -> tuple[list[Wanted], int | None, list[str]]:
    """Return the workers whose logs answer, by index; the attempt in question; and notes.

    Raises:
        NothingAskedForError: there are none.
    """
    processes = job.spec.launch.processes_per_node
    workers = _workers(job, record)
    incidents = _incidents(job, record)
    now = record.attempt if record else job.status.attempt
    if asked.failed:
        return _failed_worker(job, _culprit(incidents, asked.attempt), workers)
    if asked.attempt is not None and asked.attempt > now:
        raise NothingAskedForError(f"there is no attempt {asked.attempt}: it is in attempt {now}")
    if asked.rank is None:
        return [Wanted(index, _ranks(rank, processes), node) for index, rank, node in workers], asked.attempt, []
    then = next(
        (i for i in incidents if isinstance(i, GangIncident) and i.attempt == asked.attempt and i.rank == asked.rank),
        None,
    )
    if then is not None and then.index is not None:
        return [Wanted(then.index, str(asked.rank), then.node)], asked.attempt, []
    worker = next((candidate for candidate in workers if candidate[1] == asked.rank // processes), None)
    named = next((i for i in reversed(incidents) if isinstance(i, GangIncident) and i.rank == asked.rank), None)
    if worker is None and named is not None and named.index is not None and asked.attempt is None:
        # torchrun counts on where Muster's own numbers end.
        return [Wanted(named.index, str(asked.rank), named.node)], named.attempt, []
    if worker is None:
        last = job.spec.nodes * processes - 1
        existing_text = f"its ranks are 0 to {last}" if record is None or record.members else "it has no workers now"
        raise NothingAskedForError(f"there is no rank {asked.rank}: {existing_text}")
    notes = []
    if asked.attempt is not None and asked.attempt != now:
        notes.append(
            f"rank {asked.rank} is the one of attempt {now}: in attempt {asked.attempt} another worker may have had it"
        )
    if named is not None and named.index not in (None, worker[0]):
        notes.append(
            f"rank {asked.rank} that failed in attempt {named.attempt} was on worker {named.index}: --attempt "
            f"{named.attempt} has it"
        )
    return [Wanted(worker[0], _ranks(worker[1], processes), worker[2])], asked.attempt, notes


def _failed_worker(
    job: TrainingJob, culprit: GangIncident | Incident, workers: Sequence[tuple[int, int, str]]
) -> tuple[list[Wanted], int, list[str]]:
    """Return the worker that failed, the attempt and notes.

    Raises:
        NothingAskedForError: it is not known; after a hang the message says what is known, and where.
    """
    attempt, index = culprit.attempt, culprit.index if isinstance(culprit, GangIncident) else None
    name = f"{job.metadata.namespace}/{job.metadata.name}"
    where = f"to see where its ranks stood: kubectl muster report {name} --incident {attempt}"
    if index is None:
        index = next((worker for worker, _, node in workers if node and node == culprit.node), None)
    if index is None and is_hang(culprit.reason):
        hang_text, _ = split(culprit.message)
        raise NothingAskedForError(
            f"attempt {attempt} hung, and no worker failed: {hang_text}; {where}; or give --rank N"
        )
    if index is None:
        raise NothingAskedForError(
            f"which worker failed in attempt {attempt} is not known ({culprit.reason}): give --rank N"
        )
    rank, node = next(((rank, node) for worker, rank, node in workers if worker == index), (-1, ""))
    notes = [f"attempt {attempt} hung; {where}"] if is_hang(culprit.reason) else []
    return [Wanted(index, _ranks(rank, job.spec.launch.processes_per_node), culprit.node or node)], attempt, notes


def _workers(job: TrainingJob, record: GangSpec | None) -> list[tuple[int, int, str]]:
    """Return index, node rank (-1: a spare) and node of each member."""
    if record is None:
        return [(index, index if index < job.spec.nodes else -1, node) for index, node in enumerate(job.status.nodes)]
    return sorted((m.index, m.rank if m.role is Role.WORKER else -1, m.node) for m in record.members)


def _ranks(node_rank: int, processes: int) -> str:
    if node_rank < 0:
        return ""
    return str(node_rank) if processes == 1 else f"{node_rank * processes}-{(node_rank + 1) * processes - 1}"


def _incidents(job: TrainingJob, record: GangSpec | None) -> Sequence[GangIncident | Incident]:
    return record.incidents if record is not None and record.incidents else job.status.incidents


def _culprit(incidents: Sequence[GangIncident | Incident], attempt: int | None) -> GangIncident | Incident:
    failures = [incident for incident in incidents if incident.fault_class != FaultClass.PLANNED]
    culprit = next((incident for incident in reversed(failures) if attempt in (None, incident.attempt)), None)
    if culprit is not None:
        return culprit
    if attempt is None:
        raise NothingAskedForError("none of its workers has failed, as far as the record goes")
    numbers = ", ".join(str(incident.attempt) for incident in failures[-8:]) or "none of its attempts"
    raise NothingAskedForError(f"attempt {attempt} did not end by a failure that the record has: {numbers} did")


def pods_by_worker(pods: Sequence[PodView]) -> dict[int, list[PodView]]:
    """Return the pods of each worker, the newest first."""
    by_worker: dict[int, list[PodView]] = {}
    for pod in sorted(pods, key=lambda pod: pod.incarnation, reverse=True):
        by_worker.setdefault(pod.index, []).append(pod)
    return by_worker


def remains(job: TrainingJob, record: GangSpec | None, worker: Wanted, attempt: int | None) -> list[Remains]:
    """Return what the record has kept of this worker's failures, the newest last."""
    kept = []
    for incident in _incidents(job, record):
        same = incident.index == worker.index if isinstance(incident, GangIncident) else incident.node == worker.node
        if same and attempt in (None, incident.attempt):
            failure_text, lines = split(incident.message)
            kept.append(
                Remains(incident=incident.attempt, reason=incident.reason, message=failure_text, last_lines=lines)
            )
    return kept[-3:]


def of_attempt(lines: Sequence[str], attempt: int) -> list[str] | None:
    """Return the lines from the beginning of an attempt until another one begins; None: it did not begin here."""
    first_place: int | None = None
    for place, line in enumerate(lines):
        match = _BEGINS.search(line)
        if match is None:
            continue
        if first_place is not None and int(match[1]) != attempt:
            return list(lines[first_place:place])
        if first_place is None and int(match[1]) == attempt:
            first_place = place
    return None if first_place is None else list(lines[first_place:])


def container_of(job: TrainingJob) -> str:
    """Return the name of the container that trains; "" where it is not known."""
    first = job.spec.containers[0] if job.spec.containers else {}
    name = job.spec.launch.worker_container or first.get("name")
    return name if isinstance(name, str) else ""


def tail_of(workers: int) -> int:
    """Return how many lines of each worker to print by default."""
    return TAIL_OF_ONE if workers == 1 else TAIL_OF_SEVERAL


def worker_text(worker: Wanted) -> str:
    """Name a worker and its ranks."""
    ranks = f", rank{'s' if '-' in worker.ranks else ''} {worker.ranks}" if worker.ranks else ""
    return f"worker {worker.index}{ranks}"


def without_overwritten(line: str) -> str:
    """Return the last state of a line that was overwritten repeatedly (a progress bar)."""
    return line.rstrip("\r").rpartition("\r")[2]


def shortened(line: str) -> str:
    """Shorten a line for a terminal, with the length of the rest."""
    return line if len(line) <= MAX_CHARS else f"{line[:MAX_CHARS]}... ({len(line) - MAX_CHARS} more characters)"


def lines_of(data: bytes) -> list[str]:
    """Return the lines of a log, each as `without_overwritten` has it."""
    text = data.decode(errors="replace").removesuffix("\n")
    return [without_overwritten(line) for line in text.split("\n")] if text else []
