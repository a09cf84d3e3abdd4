"""Where to resume: never behind the newest complete checkpoint that anybody has seen, and never from scratch, unasked.

Each worker tells which checkpoints it sees, a few judge which of them are complete, and the record remembers the newest.
A start waits until everybody sees that one. Only a person says otherwise, by `spec.checkpoint.resumeFrom`; from then on
what was there beyond the step asked for is another history and does not count. Pure.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from muster.api.gang import GangSpec, Lineage, Resume
from muster.api.trainingjob import TrainingJob
from muster.checkpoint import scan
from muster.checkpoint.find import LIMIT
from muster.checkpoint.scan import MAX_STAMPS, Stamp, read_stamps, step_in_name, write_stamps
from muster.protocol.messages import MAX_NUMBER, CheckpointReport
from muster.recovery.judging import NOT_JUDGED, NOT_LISTED, judges
from muster.world.job import JobWorld, Seat
from muster.world.views import LauncherView

# How long a start waits for a checkpoint that some worker does not see (yet), after everybody's listing is there.
NOT_VISIBLE_SECONDS = 60.0
SCRATCH = "Scratch"
NOT_VISIBLE = "CheckpointNotVisible"
NOT_FOUND = "ResumeFromNotFound"
TOO_MANY = "TooManyCheckpoints"
# Clocks of clients differ, and a directory that is copied keeps no order: less says nothing about which is the newer.
ORDER_SECONDS = 60.0

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
    wish = str(wish)
    wish = str(int(wish)) if wish.isdecimal() else posixpath.normpath(wish)
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
    known = [(c.step, c.path) for c in _judged(world, record)]
    told = told_of(world)
    if told is not None and _speaks(record, told):
        known.append((told.step, told.path))
    best = max(known, default=(-1, ""))
    if record.checkpoint and record.checkpoint.step >= best[0]:
        return record.checkpoint
    return Resume(step=best[0], path=best[1]) if best[0] >= 0 else None


def told_of(world: JobWorld) -> Resume | None:
    """The newest complete checkpoint that people have been told of."""
    told = world.job.status.checkpoint
    return Resume(step=told.step, path=told.path) if told is not None else None


def _speaks(record: GangSpec, told: Resume) -> bool:
    """Whether what people were told of is to be looked for: not what a start found gone, or was asked to leave behind."""
    if record.told is not None:
        return told != record.told
    return record.lineage is None or told.step <= record.lineage.step


def counts(record: GangSpec, checkpoint: CheckpointReport) -> bool:
    """Whether it belongs to this training: after a person's wish, what was there beyond the wished step does not."""
    lineage = record.lineage
    if lineage is None:
        return True
    return _history(lineage.step, lineage.since_ns, lineage.disowned).has(checkpoint.step, checkpoint.written_ns)


@lru_cache(maxsize=256)
def _history(step: int, since_ns: int, disowned: str) -> scan.Lineage:
    return scan.lineage_of(step, since_ns, disowned)


def _judged(world: JobWorld, record: GangSpec) -> list[CheckpointReport]:
    """The complete checkpoints of this training that are seen, once for each worker that sees them."""
    return [c for view in world.views.values() for c in view.checkpoints if c.judged and counts(record, c)]


def doubt(world: JobWorld, record: GangSpec) -> str:
    """That the order of writing contradicts the order of steps, for people; "" where it does not.

    The highest step is gone on from nevertheless: a copied directory, a backup brought back and a trainer that did not load
    what it was given look like that, and then it is the right one. Nothing is lost by it, but people have to know.
    """
    found = _judged(world, record)
    highest = max(found, key=lambda c: (c.step, c.written_ns), default=None)
    latest = max(found, key=lambda c: (c.written_ns, c.step), default=None)
    if highest is None or latest is None or not highest.written_ns or latest.step >= highest.step:
        return ""
    seconds = (latest.written_ns - highest.written_ns) / 1e9
    if seconds < ORDER_SECONDS:
        return ""
    return (
        f"checkpoint {latest.step} ({latest.path}) was written {seconds / 60:.0f} min after checkpoint {highest.step} "
        f"({highest.path}), which a restart goes on from because its step is higher. If that is wrong, suspend the job and "
        f"set spec.checkpoint.resumeFrom to {latest.path}"
    )


def start(world: JobWorld, record: GangSpec) -> Start | Missing:
    """Where the next start resumes, once every worker has told what it sees."""
    if not world.job.spec.checkpoint.directory:
        return Start(None, record.lineage)
    wish = asked(world.job, record)
    if wish is not None:
        return _as_asked(world, record, wish)
    lineage = record.lineage
    if lineage and lineage.asked and world.job.spec.checkpoint.resume_from is None:
        lineage = lineage.model_copy(update={"asked": ""})  # whoever asks the same again means it
    return _unasked(world, record, lineage)


def _unasked(world: JobWorld, record: GangSpec, lineage: Lineage | None) -> Start | Missing:
    best = newest(world, record)
    unseen = _unknown_to_judges(world, record, best.step if best else -1)
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
    for keys in listings.values():
        if _is_full(keys, best.step):
            keys.add(wanted)
    if listings and all(wanted in keys for keys in listings.values()):
        everywhere.add(wanted)
    if wanted in complete and wanted in everywhere:
        return Start(best, lineage, doubt(world, record))
    blind = next((world.by_index[index] for index, keys in listings.items() if wanted not in keys), None)
    older = max(complete & everywhere, default=None)
    patient = _listed_seconds(world, record) < NOT_VISIBLE_SECONDS
    if blind is None:  # whoever judges has not dropped it
        return _not_judged(wanted)
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


def _is_full(keys: set[_Key], step: int) -> bool:
    """Whether a listing ends above this step. Who does not judge lists torn ones too, and they may leave no room for it."""
    return len(keys) >= LIMIT and min(keys)[0] > step


def _unknown_to_judges(world: JobWorld, record: GangSpec, beyond: int) -> Missing | None:
    """A newer one that is there for some, and that nobody has judged: those who do are at it, or do not see it."""
    told = [(seat, key, c) for seat in world.seats if seat.launcher for key, c in _listed(seat.launcher)]
    known = {key for _, key, c in told if c.torn or c.judged}
    newer = [(key, seat) for seat, key, c in told if key not in known and counts(record, c) and c.step > beyond]
    if not newer:
        return None
    key, seeing = max(newer, key=lambda item: item[0])
    unaware = (seat for seat in judges(world, record) if seat.launcher and key not in dict(_listed(seat.launcher)))
    blind = next(unaware, None)
    if blind is None:
        return _not_judged(key)
    patient = _listed_seconds(world, record) < NOT_VISIBLE_SECONDS
    return _not_visible(Resume(step=key[0], path=key[1]), blind, f"{seeing.where} does", None, patient)


def _not_judged(key: _Key) -> Missing:
    return Missing(NOT_JUDGED, f"checkpoint {key[0]} ({key[1]}) is being judged: is all of it there?")


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


def _as_asked(world: JobWorld, record: GangSpec, wish: str) -> Start | Missing:
    reports = [report for view in world.views.values() for report in view.checkpoints]
    if wish == SCRATCH:
        return _elsewhere(world, record, wish, None)
    complete = {(c.step, c.path) for c in reports if c.judged}
    seen = [{key for key, c in _listed(view) if not c.torn} for view in world.views.values()]
    usable = sorted(complete.intersection(*seen), reverse=True)
    for step, path in usable:
        if wish in (str(step), path):
            return _elsewhere(world, record, wish, Resume(step=step, path=path))
    pending = next((key for key in set.intersection(*seen) if wish in (str(key[0]), key[1])), None) if seen else None
    if pending is not None:
        return _not_judged(pending)
    directory = (world.job.spec.checkpoint.directory or "").rstrip("/")
    if wish.startswith("/") and not f"{wish}/".startswith(f"{directory}/"):  # elsewhere: nobody has looked there
        text = f"going on from {wish} as asked; it is outside spec.checkpoint.directory, so nobody has looked at it"
        return _elsewhere(world, record, wish, Resume(step=step_in_name(wish.rpartition("/")[2]) or 0, path=wish), text)
    there = ", ".join(str(step) for step, _ in usable[:8]) or "none"
    message = (
        f"spec.checkpoint.resumeFrom: there is no complete checkpoint {wish} that every worker sees; steps that they see: "
        f"{there}. Set it to one of these, to {SCRATCH}, or take it away"
    )
    return Missing(NOT_FOUND, message, stalled=True)


def _elsewhere(
    world: JobWorld, record: GangSpec, wish: str, where: Resume | None, warning: str = ""
) -> Start | Missing:
    """The start that was asked for, with what is there beyond it disowned by name: times alone could be wrong."""
    step = where.step if where else -1
    told = [seat for seat in judges(world, record) if seat.launcher and seat.launcher.stamps is not None]
    silent = next((seat for seat in judges(world, record) if seat not in told), None)
    if silent is not None and silent.launcher is not None:
        why, patient = silent.launcher.checkpoint_error, _listed_seconds(world, record) < NOT_VISIBLE_SECONDS
        if why or patient:
            message = f"waiting for {silent.where} to list all checkpoints beyond step {step}" + (
                f": {why}" if why else ""
            )
            return Missing(NOT_LISTED, message, stalled=not patient)
        # A launcher of old: what it lists has to do.
    listings = [read_stamps(seat.launcher.stamps or "") for seat in told if seat.launcher]
    there = {stamp for listing in listings for stamp in listing}
    there |= {(c.step, c.written_ns) for view in world.views.values() for c in view.checkpoints if c.written_ns}
    disowned = {stamp for stamp in there if stamp[0] > step} | _disowned_still(record, where, world, there)
    cut = any(len(listing) >= MAX_STAMPS and min(listing)[0] > step for listing in listings)
    if cut or len(disowned) > MAX_STAMPS:
        message = (
            f"more than {MAX_STAMPS} checkpoints lie beyond step {step}, and Muster can tell no more of them from what is "
            "written next. Move those that shall not count out of spec.checkpoint.directory"
        )
        return Missing(TOO_MANY, message, stalled=True)
    return Start(where, Lineage(asked=wish, step=step, disowned=write_stamps(disowned)), warning)


def _disowned_still(record: GangSpec, where: Resume | None, world: JobWorld, there: set[Stamp]) -> set[Stamp]:
    """What an earlier wish disowned and is still there, unless this one takes that history up again."""
    if record.lineage is None or where is None:
        return set()
    taken = (c for view in world.views.values() for key, c in _listed(view) if key == (where.step, where.path))
    if not all(counts(record, c) for c in taken):
        return set()
    lineage = record.lineage
    history = _history(lineage.step, lineage.since_ns, lineage.disowned)
    return {stamp for stamp in there if not history.has(*stamp)}


def _listed(view: LauncherView) -> Iterator[tuple[_Key, CheckpointReport]]:
    return (((report.step, report.path), report) for report in view.checkpoints)


def _listed_seconds(world: JobWorld, record: GangSpec) -> float:
    """For how long everybody's listing has been there."""
    committed = (world.now - record.time).total_seconds()
    ages = (view.scanned_age_seconds for view in world.views.values())
    return min((committed if age is None else age for age in ages), default=0.0)
