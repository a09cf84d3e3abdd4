"""Where to resume: never behind the newest complete checkpoint that anybody has seen, and never from scratch, unasked.

Each worker tells which checkpoints it sees, a few judge which of them are complete, and the record remembers the newest.
A start waits until everybody sees that one. Only a person says otherwise, by `spec.checkpoint.resumeFrom`; from then on
what was saved beyond the step asked for is another history and does not count. Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from muster.api.gang import GangSpec, Lineage, Resume
from muster.api.trainingjob import TrainingJob
from muster.protocol.messages import MAX_NUMBER, CheckpointReport
from muster.world.job import JobWorld, Seat
from muster.world.views import LauncherView

# How long a start waits for a checkpoint that some worker does not see (yet), after everybody's listing is there.
NOT_VISIBLE_SECONDS = 60.0
JUDGES = 3
SCRATCH = "Scratch"
NOT_VISIBLE = "CheckpointNotVisible"
NOT_FOUND = "ResumeFromNotFound"

_Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Missing:
    """What a start waits for: a stable reason, and what is missing in words.

    Attributes:
        stalled: only a person can help.
    """

    reason: str
    message: str
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Where the ranks go on.

    Attributes:
        resume: the checkpoint; None: from scratch.
        lineage: of the record from now on.
        warning: what people have to be told about it, "" if nothing.
    """

    resume: Resume | None
    lineage: Lineage | None
    warning: str = ""


def asked(job: TrainingJob, record: GangSpec | None) -> str | None:
    """Where a person has asked to go on from, unless that has been done already."""
    wish = job.spec.checkpoint.resume_from
    if wish is None or job.spec.checkpoint.directory is None:
        return None
    done = record.lineage.asked if record and record.lineage else None
    wish = str(wish).rstrip("/") or "/"
    return None if wish == done else wish


def passed_over(job: TrainingJob, record: GangSpec) -> GangSpec | None:
    """The record with a wish noted that came when the ranks ran already: carried out at the next fault it would surprise."""
    wish = asked(job, record)
    if wish is None or record.go is None or job.spec.suspend:
        return None
    lineage = record.lineage or Lineage(asked=wish, step=MAX_NUMBER)
    return record.model_copy(update={"lineage": lineage.model_copy(update={"asked": wish})})


def newest(world: JobWorld, record: GangSpec) -> Resume | None:
    """The newest complete checkpoint that any worker sees, or that the record knows, or that people have been told of.

    While all goes well the record is not written, so that a leader which has heard nobody knows it by the status alone.
    """
    found = [report for view in world.views.values() for report in view.checkpoints if report.judged]
    known = [(c.step, c.path) for c in found if counts(record, c)]
    told = world.job.status.checkpoint
    if told is not None and (record.lineage is None or told.step <= record.lineage.step):
        known.append((told.step, told.path))
    best = max(known, default=(-1, ""))
    if record.checkpoint and record.checkpoint.step >= best[0]:
        return record.checkpoint
    return Resume(step=best[0], path=best[1]) if best[0] >= 0 else None


def counts(record: GangSpec, checkpoint: CheckpointReport) -> bool:
    """Whether it belongs to this training: after a person's wish, what was there beyond the wished step does not."""
    lineage = record.lineage
    return lineage is None or checkpoint.step <= lineage.step or checkpoint.written_ns > lineage.since_ns


def start(world: JobWorld, record: GangSpec) -> Start | Missing:
    """Where the next start resumes, once every worker has told what it sees."""
    if not world.job.spec.checkpoint.directory:
        return Start(None, record.lineage)
    wish = asked(world.job, record)
    if wish is not None:
        return _as_asked(world, wish)
    lineage = record.lineage
    if lineage and lineage.asked and world.job.spec.checkpoint.resume_from is None:
        lineage = lineage.model_copy(update={"asked": ""})  # whoever asks the same again means it
    return _unasked(world, record, lineage)


def _unasked(world: JobWorld, record: GangSpec, lineage: Lineage | None) -> Start | Missing:
    best = newest(world, record)
    unseen = _seen_by_nobody_who_judges(world, record, best.step if best else -1)
    if unseen is not None:
        return unseen
    if best is None:
        return Start(None, lineage)
    listings = {
        index: {key for key, c in _listed(view) if counts(record, c) and not c.torn}
        for index, view in world.views.items()
    }
    complete = {key for view in world.views.values() for key, c in _listed(view) if c.judged and counts(record, c)}
    everywhere = set.intersection(*listings.values()) if listings else set()
    wanted = (best.step, best.path)
    if wanted in complete and wanted in everywhere:
        return Start(best, lineage)
    blind = next((world.by_index[index] for index, keys in listings.items() if wanted not in keys), None)
    older = max(complete & everywhere, default=None)
    patient = _listed_seconds(world, record) < NOT_VISIBLE_SECONDS
    if blind is None:  # whoever judges has not dropped it
        return Missing(
            "CheckpointsNotJudged", f"checkpoint {best.step} ({best.path}) is being judged: is all of it there?"
        )
    seeing = next((world.by_index[index] for index, keys in listings.items() if wanted in keys), None)
    if seeing is not None:  # complete, or not gone at least: it may be that those who judge do not see it
        return _not_visible(best, blind, f"{seeing.where} does", older, patient)
    # The record knows it, and nobody finds it complete any more.
    if older is None or patient:
        return _not_visible(best, blind, "nor does any other worker as a complete one", older, patient)
    warning = (
        f"checkpoint {best.step} ({best.path}) is gone, or no longer complete, for every worker; going on from "
        f"{older[0]} ({older[1]})"
    )
    return Start(Resume(step=older[0], path=older[1]), lineage, warning)


def _seen_by_nobody_who_judges(world: JobWorld, record: GangSpec, beyond: int) -> Missing | None:
    """A newer one that is there for some, and not for those who judge: their mount is missing, or it is very new."""
    told = [(seat, key, c) for seat in world.seats if seat.launcher for key, c in _listed(seat.launcher)]
    known = {key for _, key, c in told if c.torn or c.judged}
    newer = [(key, seat) for seat, key, c in told if key not in known and counts(record, c) and c.step > beyond]
    judges = [seat for place, seat in enumerate(world.seats) if does_judge(place, record)]
    for key, seeing in sorted(newer, key=lambda item: item[0], reverse=True):
        blind = next((seat for seat in judges if seat.launcher and key not in dict(_listed(seat.launcher))), None)
        if blind is not None:
            patient = _listed_seconds(world, record) < NOT_VISIBLE_SECONDS
            best = Resume(step=key[0], path=key[1])
            return _not_visible(best, blind, f"{seeing.where} does", None, patient)
    return None


def does_judge(place: int, record: GangSpec) -> bool:
    """Whether the worker at this place of the list looks whether checkpoints are complete; the others look what is there.

    It means many small reads of shared storage, so that a few of a gang do it.
    """
    count = len(record.members)
    return place in {count * part // JUDGES for part in range(JUDGES)}


def _not_visible(best: Resume, blind: Seat | None, others: str, older: _Key | None, patient: bool) -> Missing:
    who = blind.where if blind else "no worker"
    message = f"{who} does not see checkpoint {best.step} ({best.path}), {others}"
    if patient:
        return Missing(NOT_VISIBLE, message)
    instead = f"{older[0]}, the newest that all of them see, or {SCRATCH}" if older else SCRATCH
    remedy = (
        "Mend the mount of spec.checkpoint.directory there (it has to be one shared directory; what is on each node's own "
        f"disk belongs into spec.checkpoint.localDirectory), or set spec.checkpoint.resumeFrom to {instead}"
    )
    return Missing(NOT_VISIBLE, f"{message}. {remedy}.", stalled=True)


def _as_asked(world: JobWorld, wish: str) -> Start | Missing:
    reports = [report for view in world.views.values() for report in view.checkpoints]
    since = max((report.written_ns for report in reports), default=0)
    if wish == SCRATCH:
        return Start(None, Lineage(asked=wish, step=-1, since_ns=since))
    complete = {(c.step, c.path) for c in reports if c.judged}
    seen = [{key for key, c in _listed(view) if not c.torn} for view in world.views.values()]
    usable = sorted(complete.intersection(*seen), reverse=True)
    for step, path in usable:
        if wish in (str(step), path):
            return Start(Resume(step=step, path=path), Lineage(asked=wish, step=step, since_ns=since))
    pending = next((key for key in set.intersection(*seen) if wish in (str(key[0]), key[1])), None) if seen else None
    if pending is not None:
        return Missing(
            "CheckpointsNotJudged", f"checkpoint {pending[0]} ({pending[1]}) is being judged: is all of it there?"
        )
    directory = (world.job.spec.checkpoint.directory or "").rstrip("/")
    if wish.startswith("/") and not f"{wish}/".startswith(f"{directory}/"):  # elsewhere: nobody has looked there
        step = _step_in(wish)
        text = f"going on from {wish} as asked; it is outside spec.checkpoint.directory, so nobody has looked at it"
        return Start(Resume(step=step, path=wish), Lineage(asked=wish, step=step, since_ns=since), text)
    there = ", ".join(str(step) for step, _ in usable[:8]) or "none"
    message = (
        f"spec.checkpoint.resumeFrom: there is no complete checkpoint {wish} that every worker sees; steps that they see: "
        f"{there}. Set it to one of these, to {SCRATCH}, or take it away"
    )
    return Missing(NOT_FOUND, message, stalled=True)


def _listed(view: LauncherView) -> Iterator[tuple[_Key, CheckpointReport]]:
    return (((report.step, report.path), report) for report in view.checkpoints)


def _listed_seconds(world: JobWorld, record: GangSpec) -> float:
    """For how long everybody's listing has been there."""
    committed = (world.now - record.time).total_seconds()
    ages = (view.scanned_age_seconds for view in world.views.values())
    return min((committed if age is None else age for age in ages), default=0.0)


def _step_in(path: str) -> int:
    """The last number in the last part of a path, 0 if there is none."""
    numbers = re.findall(r"\d{1,18}", path.rstrip("/").rpartition("/")[2])
    return int(numbers[-1]) if numbers else 0
