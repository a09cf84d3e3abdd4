"""Where to resume: never behind the newest complete checkpoint that was seen, and never from scratch unless requested.

Each worker reports which checkpoints it sees, a few verify them, and the record remembers the newest. A start waits
until every worker sees that one. Only a user decides otherwise, by `spec.checkpoint.resumeFrom`. From then on what lies
beyond the requested step is another branch and does not count. `unloadable.py` beside this has the one exception. Pure.
"""

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from muster.api.gang import Branch, Corruption, GangSpec, Resume
from muster.api.trainingjob import TrainingJob
from muster.protocol import checkpoints
from muster.protocol.checkpoint_names import above, absolute, is_url, step_in_name
from muster.protocol.checkpoints import ERROR_KINDS, MAX_LISTED, MAX_STAMPS, Stamp, read_stamps, write_stamps
from muster.protocol.messages import MAX_NUMBER, CheckpointReport
from muster.protocol.resuming import is_own
from muster.recovery.modes import mode_of
from muster.recovery.verification import NOT_LISTED, NOT_VERIFIED, verifiers
from muster.recovery.words import suspects_text
from muster.world.job import JobWorld, OtherJob, WorkerView
from muster.world.names import verb_for
from muster.world.views import LauncherView

# How long a start waits for a checkpoint that some worker does not see (yet), after all listings are there.
NOT_VISIBLE_SECONDS = 60.0
SCRATCH = "Scratch"
NOT_VISIBLE = "CheckpointNotVisible"
NOT_FOUND = "ResumeFromNotFound"
BEHIND = "CheckpointsBehindResumeFrom"
TOO_MANY = "TooManyCheckpoints"
ALL_SUSPECT = "EveryCheckpointSuspect"
# Clocks of clients differ, and a directory that is copied keeps no order: less says nothing about which is the newer.
ORDER_SECONDS = 60.0

_Key = tuple[int, str]
_BRANCH = re.compile(r"job/(?P<job>[a-z][-a-z0-9]*)(?:@(?P<step>\d{1,18}))?\Z")


class ForkPoint(NamedTuple):
    """A checkpoint of another job from which a job begins: of the given step, or the newest where the step is None."""

    job: str
    step: int | None


def fork_point_of(requested: int | str | None) -> ForkPoint | None:
    """Return the other job and step that spec.checkpoint.resumeFrom names; None where it names no job."""
    match = _BRANCH.match(str(requested)) if requested is not None else None
    if match is None:
        return None
    return ForkPoint(match["job"], None if match["step"] is None else int(match["step"]))


@dataclass(frozen=True, slots=True)
class Missing:
    """What a start waits for.

    Attributes:
        reason: stable and in CamelCase.
        message: for people.
        stalled: whether only a user can help.
    """

    reason: str
    message: str
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Start:
    """Where the ranks resume.

    Attributes:
        resume: the checkpoint; None: from scratch.
        branch: of the record from now on; None: there is only one branch.
        warning: what people should know about it; "" if nothing.
        suspect: steps of the checkpoints that do not count any more because of wrong results, newest first.
        local_attempt: the attempt that saved the checkpoint on the nodes' own disks; 0: it lies in the shared
            directory.
        shared: the newest shared checkpoint, where the ranks resume from their nodes' own disks; None: there is none.
        instead_of: the newer checkpoint that does not count any more, since starts from it failed; None: there is none.
    """

    resume: Resume | None
    branch: Branch | None
    warning: str = ""
    suspect: tuple[int, ...] = ()
    local_attempt: int = 0
    shared: Resume | None = None
    instead_of: Resume | None = None

    @property
    def lasting(self) -> Resume | None:
        """The checkpoint that is left when a node is lost; None: none."""
        return self.shared if self.local_attempt else self.resume


def requested_resume(job: TrainingJob, record: GangSpec | None) -> str | None:
    """Return the resume that a user requests in spec.checkpoint.resumeFrom; None: none, or it was carried out
    already."""
    requested = job.spec.checkpoint.resume_from
    if requested is None or job.spec.checkpoint.directory is None:
        return None
    done = record.branch.resume_from if record and record.branch else None
    requested = _plain(str(requested))
    return None if requested == done else requested


def _plain(requested: str) -> str:
    """Return a step or path as launchers list it: no leading zeros, no `//` or `..`."""
    if requested.isdecimal():
        return str(int(requested))
    return absolute(requested) if is_url(requested) else posixpath.normpath(requested)


def requested_checkpoint(requested: str | None) -> str | None:
    """Return the checkpoint that launchers look for: of another job the step, "" for its newest; None: nothing is
    requested."""
    fork = fork_point_of(requested)
    if fork is None:
        return requested
    return "" if fork.step is None else str(fork.step)


def requested_directory(job: TrainingJob, requested: str | None, other: OtherJob | None) -> str:
    """Return the directory besides the job's own in which launchers look for the requested checkpoint; "": none."""
    own = job.spec.checkpoint.directory
    if requested is None or own is None:
        return ""
    if fork_point_of(requested) is not None:
        return other.directory if other is not None and other.directory != own else ""
    return above(requested) if _is_place(requested) and not is_own(requested, own) else ""


def _is_place(requested: str) -> bool:
    """Whether the requested resume is a place of a checkpoint: a path, or a URL."""
    return requested.startswith("/") or is_url(requested)


def with_ignored_request(job: TrainingJob, record: GangSpec) -> GangSpec | None:
    """Return the record that notes a requested resume which came while the ranks run; None: there is none.

    Such a request has no effect: carried out at the next fault, it would surprise the user.
    """
    requested = requested_resume(job, record)
    if requested is None or record.start is None or job.spec.suspend:
        return None
    branch = record.branch or Branch(resume_from=requested, step=MAX_NUMBER)
    return record.model_copy(update={"branch": branch.model_copy(update={"resume_from": requested})})


def without_cleared_request(job: TrainingJob, record: GangSpec) -> GangSpec | None:
    """Return the record without the requested resume that it notes, once the job's spec has none; None: nothing to
    change.

    A user who then requests the same again means it.
    """
    if job.spec.checkpoint.resume_from is not None or record.branch is None or not record.branch.resume_from:
        return None
    return record.model_copy(update={"branch": record.branch.model_copy(update={"resume_from": ""})})


def newest_checkpoint(world: JobWorld, record: GangSpec) -> Resume | None:
    """Return the newest complete checkpoint that a worker sees, the record holds, or the status shows; None: there is
    none.

    While all goes well the record is not written. So a leader that has heard no launcher knows it by the status alone.
    """
    candidates = [(c.step, c.path) for c in complete_checkpoints(world, record)]
    published = published_checkpoint(world)
    if published is not None and _published_counts(record, published):
        candidates.append((published.step, published.path))
    best = max(candidates, default=(-1, ""))
    if record.checkpoint and record.checkpoint.step >= best[0]:
        return record.checkpoint
    return Resume(step=best[0], path=best[1]) if best[0] >= 0 else None


def published_checkpoint(world: JobWorld) -> Resume | None:
    """Return the newest complete checkpoint that the job's status shows; None: it shows none."""
    published = world.job.status.checkpoint
    return Resume(step=published.step, path=published.path) if published is not None else None


def _published_counts(record: GangSpec, published: Resume) -> bool:
    """Whether the checkpoint in the status counts: a start has neither found it gone nor left it behind on request."""
    if record.last_published_checkpoint is not None:
        return published != record.last_published_checkpoint
    return record.branch is None or published.step <= record.branch.step


def is_of_present_branch(record: GangSpec, checkpoint: CheckpointReport) -> bool:
    """Whether a checkpoint belongs to the present branch of the training."""
    branch = record.branch
    if branch is None:
        return True
    return _history(branch).has(checkpoint.step, checkpoint.written_ns)


def _history(branch: Branch) -> checkpoints.BranchFilter:
    return _parse_exclusions(branch.step, branch.excluded_checkpoints, branch.frozen)


@lru_cache(maxsize=256)
def _parse_exclusions(step: int, excluded: str, frozen: bool) -> checkpoints.BranchFilter:
    return checkpoints.branch_of(step, excluded, frozen)


def complete_checkpoints(world: JobWorld, record: GangSpec) -> list[CheckpointReport]:
    """Return the complete checkpoints of the present branch, once for each worker that sees them."""
    return [
        c for view in world.views.values() for c in view.checkpoints if c.verified and is_of_present_branch(record, c)
    ]


def saves_unseen(job: TrainingJob) -> str:
    """Return why Muster sees no checkpoint of the job, so that an evacuation waits for none; "" where it sees them."""
    if mode_of(job).starts_with_pods:
        return "launch.mode is Plain"
    return "" if job.spec.checkpoint.directory else "spec.checkpoint.directory is not set"


def order_warning(world: JobWorld, record: GangSpec) -> str:
    """Return the message that checkpoints were written in another order than their steps; "" where they were not.

    The highest step is resumed all the same. A copied directory, a restored backup or a trainer that did not load its
    checkpoint look like that, and then it is the right one.
    """
    complete = complete_checkpoints(world, record)
    highest = max(complete, key=lambda c: (c.step, c.written_ns), default=None)
    latest = max(complete, key=lambda c: (c.written_ns, c.step), default=None)
    if highest is None or latest is None or not highest.written_ns or latest.step >= highest.step:
        return ""
    seconds = (latest.written_ns - highest.written_ns) / 1e9
    if seconds < ORDER_SECONDS:
        return ""
    return (
        f"checkpoint {latest.step} ({latest.path}) was written {seconds / 60:.0f} min after checkpoint "
        f"{highest.step} ({highest.path}), which a restart goes on from because its step is higher. If that is "
        f"wrong, suspend the job and set spec.checkpoint.resumeFrom to {latest.path}"
    )


def start_of_next_attempt(world: JobWorld, record: GangSpec) -> Start | Missing:
    """Return where the next start resumes, once every worker has listed its checkpoints; before that, what is
    missing."""
    if not world.job.spec.checkpoint.directory:
        return Start(None, record.branch)
    requested = requested_resume(world.job, record)
    if requested is not None:
        return _requested_start(world, record, requested)
    start = _start_without_request(world, record, record.branch)
    if isinstance(start, Start) and record.open_corruption is not None:
        return _start_after_corruption(world, record, start, record.open_corruption)
    return start


def with_frozen_branch(world: JobWorld, record: GangSpec, beyond: int) -> GangSpec:
    """Return the record in which no checkpoint beyond a step counts, whenever it was written.

    That holds until the next start excludes those by name that are there once no rank runs. A checkpoint beyond the
    step does not count either where the status shows it.
    """
    branch = record.branch or Branch(resume_from="", step=beyond)
    step = min(beyond, branch.step) if branch.frozen else beyond  # of one that is frozen already nothing beyond counts
    checkpoint = record.checkpoint if record.checkpoint and record.checkpoint.step <= step else None
    changes = {
        "branch": branch.model_copy(update={"step": step, "frozen": True}),
        "last_published_checkpoint": published_checkpoint(world),
        "checkpoint": checkpoint,
    }
    other = record.model_copy(update=changes)
    return other.model_copy(update={"checkpoint": newest_checkpoint(world, other)})


def complete_steps(world: JobWorld, record: GangSpec) -> list[int]:
    """Return the steps of the complete checkpoints of the present branch that any worker sees."""
    return [c.step for c in complete_checkpoints(world, record)]


def start_behind(world: JobWorld, record: GangSpec, checkpoint: Resume) -> Start | Missing:
    """Return the start from the newest complete checkpoint before a given one, with all beyond it excluded by name.

    Args:
        world: the state of the job.
        record: of the gang; nothing was requested.
        checkpoint: the one behind which to start.
    """
    other = with_frozen_branch(world, record, checkpoint.step - 1)
    start = _start_without_request(world, other, other.branch)
    if isinstance(start, Missing) or start.resume is None:
        return start
    step = start.resume.step
    stamps = _all_stamps(world, record, step)
    if isinstance(stamps, Missing):
        return stamps
    excluded = {
        stamp for stamp in stamps if stamp[0] > step or (record.branch and not _history(record.branch).has(*stamp))
    }
    if len(excluded) > MAX_STAMPS:
        return _too_many(step)
    changes = {"step": step, "excluded_checkpoints": write_stamps(excluded), "frozen": False}
    return replace(start, branch=(record.branch or Branch(resume_from="")).model_copy(update=changes))


def _start_after_corruption(world: JobWorld, record: GangSpec, start: Start, corruption: Corruption) -> Start | Missing:
    """Return the start after wrong results, with all checkpoints beyond the last good step excluded by name.

    Args:
        world: the state of the job.
        record: of the gang.
        start: the start from the last good step.
        corruption: the report of wrong results.
    """
    branch = start.branch
    if branch is None:  # a record that was edited by hand
        return start
    if start.resume is None and corruption.newest_checkpoint is not None:
        message = (
            f"no complete checkpoint of step {branch.step} or before is left, and all later ones are suspect (the "
            f"newest is {corruption.newest_checkpoint.step}, {corruption.newest_checkpoint.path}): "
            f"{corruption.message}. Set spec.checkpoint.resumeFrom to the step that shall count nevertheless, or to "
            f"{SCRATCH}{_repeat_hint(record)}"
        )
        return Missing(ALL_SUSPECT, message, stalled=True)
    stamps = _all_stamps(world, record, branch.step)
    if isinstance(stamps, Missing):
        return stamps
    excluded = {stamp for stamp in stamps if not _history(branch).has(*stamp)}
    if len(excluded) > MAX_STAMPS:
        return _too_many(branch.step)
    old_history = _history(Branch(resume_from="", step=MAX_NUMBER, excluded_checkpoints=branch.excluded_checkpoints))
    suspect = sorted({step for step, written_ns in excluded if old_history.has(step, written_ns)}, reverse=True)
    other = branch.model_copy(update={"excluded_checkpoints": write_stamps(excluded), "frozen": False})
    warning = "; ".join(part for part in (suspects_text(suspect), start.warning) if part)
    return Start(start.resume, other, warning, tuple(suspect))


def _start_without_request(world: JobWorld, record: GangSpec, branch: Branch | None) -> Start | Missing:
    best = newest_checkpoint(world, record)
    unseen = _unknown_to_verifiers(world, record, best.step if best else -1)
    if unseen is not None:
        return unseen
    if best is None:
        return Start(None, branch)
    if not is_own(best.path, world.job.spec.checkpoint.directory or ""):
        return _begun_elsewhere(world, record, best, branch)
    listings = {
        index: {key for key, c in _listed(view) if is_of_present_branch(record, c) and not c.incomplete}
        for index, view in world.views.items()
    }
    complete = {
        key
        for view in world.views.values()
        for key, c in _listed(view)
        if c.verified and is_of_present_branch(record, c)
    }
    everywhere = {key for key in complete if all(_may_see(keys, key) for keys in listings.values())}
    wanted = (best.step, best.path)
    if wanted in everywhere:
        return Start(best, branch, order_warning(world, record))
    blind = next((world.by_index[index] for index, keys in listings.items() if not _may_see(keys, wanted)), None)
    older = max(everywhere, default=None)
    patient = listed_seconds(world, record) < NOT_VISIBLE_SECONDS
    if blind is None:  # no verifier calls it incomplete
        return _awaited_verdict(wanted)
    seeing = next((world.by_index[index] for index, keys in listings.items() if wanted in keys), None)
    if seeing is not None and not _is_incomplete(world, record, wanted):
        # Complete, or not gone at least: the verifiers may not see it.
        return _not_visible(record, best, blind, f"{seeing.where} does", older, patient)
    # The record holds it, and no verifier finds it complete any more.
    if older is None or patient:
        others = "nor does any other worker as a complete one"
        return _not_visible(record, best, blind, others, older, patient)
    warning = (
        f"checkpoint {best.step} ({best.path}) is gone, or no longer complete, for every worker; going on from "
        f"{older[0]} ({older[1]})"
    )
    return Start(Resume(step=older[0], path=older[1]), branch, warning)


def _begun_elsewhere(world: JobWorld, record: GangSpec, best: Resume, branch: Branch | None) -> Start | Missing:
    """Return the start of a training that began at a requested place and has saved nothing beyond it.

    Where it has saved checkpoints that are not beyond that place, a user has to decide: what is missing is returned.
    """
    own = max(complete_checkpoints(world, record), key=lambda c: c.step, default=None)
    if own is None:
        return Start(best, branch)
    message = (
        f"the newest checkpoint of its own, {own.step} ({own.path}), is not beyond {best.step} ({best.path}), where "
        f"spec.checkpoint.resumeFrom let it begin: its steps may have begun again. Set resumeFrom to {own.path}, or to "
        f"{best.path}{_repeat_hint(record)}"
    )
    return Missing(BEHIND, message, stalled=True)


def _may_see(keys: set[_Key], key: _Key) -> bool:
    """Whether a worker may see a checkpoint: it is listed, or the full listing ends at a higher step.

    A worker that does not verify lists incomplete checkpoints, too, which may leave no room.

    Args:
        keys: step and path of the checkpoints that the worker lists.
        key: of the checkpoint.
    """
    return key in keys or (len(keys) >= MAX_LISTED and min(keys)[0] > key[0])


def passed_over_text(world: JobWorld, record: GangSpec, resumed: Resume | None) -> str:
    """Return that checkpoints beyond the one to resume from are not complete, as all verifiers see; "": there are none.

    Args:
        world: the state of the job.
        record: of the gang before the start.
        resumed: the checkpoint to resume from; None: none.
    """
    beyond = resumed.step if resumed is not None else -1
    listed = (
        (key, c.problem)
        for view in world.views.values()
        for key, c in _listed(view)
        if c.incomplete and c.step > beyond and is_of_present_branch(record, c)
    )
    newer = dict(sorted(entry for entry in listed if _is_incomplete(world, record, entry[0])))
    if not newer:
        return ""
    (step, path), problem = newer.popitem()
    text = f"checkpoint {step} ({path}) is newer and not complete{f': {problem}' if problem else ''}"
    text += f"; nor {verb_for(len(newer))} {len(newer)} more before it" if newer else ""
    failed_at_once = bool(record.incidents) and not record.incidents[-1].trained
    loads_it = self_found_text(world.job, path, "that one") if failed_at_once else ""
    return f"{text}. {loads_it}" if loads_it else text


def self_found_text(job: TrainingJob, path: str, checkpoint_text: str) -> str:
    """Return that a program may load a checkpoint by itself that does not count, and the remedy; "": it is moved away,
    or is in a store, where nothing is moved.

    Args:
        job: the job.
        path: of the checkpoint.
        checkpoint_text: the checkpoint, in the words of the sentence.
    """
    if job.spec.checkpoint.move_incomplete or is_url(path):
        return ""
    return (
        f"A program that finds its newest checkpoint itself loads {checkpoint_text}: a job with "
        "spec.checkpoint.moveIncomplete has it moved away first"
    )


def _is_incomplete(world: JobWorld, record: GangSpec, key: _Key) -> bool:
    """Whether every verifier sees the checkpoint as incomplete, so that its name in the other listings says nothing."""
    views = [worker_view.launcher for worker_view in verifiers(world, record)]
    return all(view is not None and any(c.incomplete for seen, c in _listed(view) if seen == key) for view in views)


def _unknown_to_verifiers(world: JobWorld, record: GangSpec, beyond: int) -> Missing | None:
    """Return that the start waits for a newer checkpoint that no verifier has judged; None: there is none.

    Verifiers are still at it, or do not see it.

    Args:
        world: the state of the job.
        record: of the gang.
        beyond: the step beyond which a checkpoint is newer.
    """
    seen = [
        (worker_view, key, c)
        for worker_view in world.worker_views
        if worker_view.launcher
        for key, c in _listed(worker_view.launcher)
    ]
    judged = {key for _, key, c in seen if c.incomplete or c.verified}
    newer = [
        (key, worker_view)
        for worker_view, key, c in seen
        if key not in judged and is_of_present_branch(record, c) and c.step > beyond
    ]
    if not newer:
        return None
    key, seeing = max(newer, key=lambda item: item[0])
    unaware = (
        worker_view
        for worker_view in verifiers(world, record)
        if worker_view.launcher and key not in dict(_listed(worker_view.launcher))
    )
    blind = next(unaware, None)
    if blind is None:
        return _awaited_verdict(key)
    patient = listed_seconds(world, record) < NOT_VISIBLE_SECONDS
    return _not_visible(record, Resume(step=key[0], path=key[1]), blind, f"{seeing.where} does", None, patient)


def _awaited_verdict(key: _Key) -> Missing:
    return Missing(
        NOT_VERIFIED,
        f"checkpoint {key[0]} ({key[1]}) is being verified: a worker checks whether all of its files are there",
    )


def _not_visible(
    record: GangSpec, best: Resume, blind: WorkerView | None, others: str, older: _Key | None, patient: bool
) -> Missing:
    who = blind.where if blind else "no worker"
    message = f"{who} does not see checkpoint {best.step} ({best.path}), {others}"
    if patient:
        return Missing(NOT_VISIBLE, message)
    instead = f"{older[0]}, the newest that all of them see, or {SCRATCH}" if older else SCRATCH
    remedy = (
        "See what that pod's credentials and endpoint show of spec.checkpoint.directory"
        if is_url(best.path)
        else "Repair the mount of spec.checkpoint.directory there (it has to be one shared directory; what is on each "
        "node's own disk belongs into spec.checkpoint.localDirectory)"
    ) + f", or set spec.checkpoint.resumeFrom to {instead}"
    return Missing(NOT_VISIBLE, f"{message}. {remedy}{_repeat_hint(record)}.", stalled=True)


def _repeat_hint(record: GangSpec) -> str:
    """Return how a user can request again what resumeFrom says and what was carried out; "": nothing stands there."""
    if record.branch is None or not record.branch.resume_from:
        return ""
    return f" ({record.branch.resume_from} was already applied: to apply it again, clear the field first)"


def _requested_start(world: JobWorld, record: GangSpec, requested: str) -> Start | Missing:
    fork = fork_point_of(requested)
    if fork is not None:
        return _start_from_other_job(world, record, requested, fork)
    reports = [report for view in world.views.values() for report in view.checkpoints]
    if requested == SCRATCH:
        return _start_at_request(world, record, requested, None)
    complete = {(c.step, c.path) for c in reports if c.verified}
    seen = [{key for key, c in _listed(view) if not c.incomplete} for view in world.views.values()]
    usable = sorted(complete.intersection(*seen), reverse=True)
    for step, path in usable:
        if requested in (str(step), path):
            return _start_at_request(world, record, requested, Resume(step=step, path=path))
    pending = (
        next((key for key in set.intersection(*seen) if requested in (str(key[0]), key[1])), None) if seen else None
    )
    if pending is not None:
        return _awaited_verdict(pending)
    if _is_place(requested) and not is_own(requested, world.job.spec.checkpoint.directory or ""):
        match = next((key for key in _seen_elsewhere(world, above(requested)) if key[1] == requested), None)
        if match is not None:
            return _start_at_request(world, record, requested, Resume(step=match[0], path=match[1]))
        why = _unseen_elsewhere(world)
        text = (
            f"resuming from {requested} as requested; it is outside spec.checkpoint.directory, and no launcher has "
            "found it complete" + (f": {why}" if why else "")
        )
        return _start_at_request(
            world, record, requested, Resume(step=step_in_name(requested.rpartition("/")[2]) or 0, path=requested), text
        )
    usable_text = ", ".join(str(step) for step, _ in usable[:8]) or "none"
    message = (
        f"spec.checkpoint.resumeFrom: there is no complete checkpoint {requested} that every worker sees; steps "
        f"that they see: {usable_text}. Set it to one of these, to {SCRATCH}, or clear the field"
    )
    return Missing(NOT_FOUND, message, stalled=True)


def _start_from_other_job(world: JobWorld, record: GangSpec, requested: str, fork: ForkPoint) -> Start | Missing:
    """Return the start from a checkpoint of another job, once every worker sees it and a verifier found it complete.

    Args:
        world: the state of the job.
        record: of the gang.
        requested: spec.checkpoint.resumeFrom.
        fork: the job and step that it names.
    """
    other, own = world.other, world.job.spec.checkpoint.directory or ""
    which = "complete checkpoint" if fork.step is None else f"complete checkpoint {fork.step}"
    field = f"spec.checkpoint.resumeFrom: {requested}:"
    elsewhere = f"set resumeFrom to the absolute path or the URL of the checkpoint, or to {SCRATCH}"
    instead, alone = f"Or {elsewhere}", f"S{elsewhere[1:]}"
    saved = newest_checkpoint(world, record)
    if saved is not None and is_own(saved.path, own):
        alone = (
            f"Remove resumeFrom to go on from this job's own newest checkpoint, {saved.step} ({saved.path}). {instead}"
        )
        instead = alone
    if other is None or not other.exists:
        return Missing(NOT_FOUND, f"{field} there is no job {fork.job} in this namespace. {alone}", stalled=True)
    if not other.directory:
        text = (
            f"{field} job {fork.job} has no spec.checkpoint.directory, so Muster does not know where it saves. {alone}"
        )
        return Missing(NOT_FOUND, text, stalled=True)
    if absolute(other.directory) == absolute(own):
        text = (
            f"{field} job {fork.job} saves to {own}, too, and two jobs must not share a directory. Create this "
            "job again, with a spec.checkpoint.directory of its own"
        )
        return Missing(NOT_FOUND, text, stalled=True)
    seen = _seen_elsewhere(world, other.directory)
    match = next((key for key in seen if fork.step in (None, key[0])), None)
    if match is not None:
        return _start_at_request(world, record, requested, Resume(step=match[0], path=match[1]))
    # It is verified where it is seen, or some worker does not see it at all.
    why = _unseen_elsewhere(world)
    if is_url(other.directory):
        remedy = f"Credentials and endpoint of this job's worker container have to show {fork.job}'s directory"
    else:
        remedy = f"The volume of {fork.job}'s directory has to be mounted in this job's workers, at the same path"
    if _is_unverified(world):  # which says nothing of what is there
        text = f"{field} whether there is a {which} of job {fork.job} in {other.directory} is not known: {why}. {alone}"
    else:
        newest_there = f"the newest that they see is {seen[0][0]}" if seen else "they see none"
        text = (
            f"{field} there is no {which} of job {fork.job} in {other.directory} that every worker sees "
            f"({newest_there}). {why}{'. ' if why else ''}{remedy}. {instead}"
        )
    return Missing(NOT_FOUND, text, stalled=listed_seconds(world, record) >= NOT_VISIBLE_SECONDS)


def _unseen_elsewhere(world: JobWorld) -> str:
    """Return which worker does not see the directory that is not the job's own, and why; "": none reports that."""
    errors = [
        (worker_view.where, worker_view.launcher.other_directory_error)
        for worker_view in world.worker_views
        if worker_view.launcher
    ]
    return next((f"{where}: {error.rstrip('.')}" for where, error in errors if error), "")


def _is_unverified(world: JobWorld) -> bool:
    """Whether a worker could not reach the store in which the other directory lies."""
    return any(view.other_directory_error_kind in ERROR_KINDS for view in world.views.values())


def _seen_elsewhere(world: JobWorld, directory: str) -> list[_Key]:
    """Return the checkpoints in another directory that every worker sees and a verifier found complete, newest
    first."""
    judged_by_worker = [
        {(c.step, c.path): c.verified for c in view.other_directory if is_own(c.path, directory)}
        for view in world.views.values()
    ]
    if not judged_by_worker:
        return []
    complete = {key for keys in judged_by_worker for key, judged in keys.items() if judged}
    return sorted(complete.intersection(*judged_by_worker), reverse=True)


def _start_at_request(
    world: JobWorld, record: GangSpec, requested: str, where: Resume | None, warning: str = ""
) -> Start | Missing:
    """Return the start that a user requested, with all checkpoints beyond it excluded by name: times could be wrong.

    Args:
        world: the state of the job.
        record: of the gang.
        requested: spec.checkpoint.resumeFrom.
        where: the checkpoint; None: from scratch.
        warning: what people should know about it.
    """
    step = where.step if where else -1
    stamps = _all_stamps(world, record, step)
    if isinstance(stamps, Missing):
        return stamps
    excluded = {stamp for stamp in stamps if stamp[0] > step} | _still_excluded(record, where, world, stamps)
    if len(excluded) > MAX_STAMPS:
        return _too_many(step)
    return Start(where, Branch(resume_from=requested, step=step, excluded_checkpoints=write_stamps(excluded)), warning)


def _all_stamps(world: JobWorld, record: GangSpec, step: int) -> set[Stamp] | Missing:
    """Return step and time of all checkpoints that exist, those of other branches included; or what is missing for
    that.

    All checkpoints beyond the given step have to be among them.
    """
    answered = [
        worker_view
        for worker_view in verifiers(world, record)
        if worker_view.launcher and worker_view.launcher.stamps is not None
    ]
    silent = next((worker_view for worker_view in verifiers(world, record) if worker_view not in answered), None)
    if silent is not None and silent.launcher is not None:
        why, patient = silent.launcher.checkpoint_error, listed_seconds(world, record) < NOT_VISIBLE_SECONDS
        message = f"waiting for {silent.where} to list all checkpoints beyond step {step}" + (f": {why}" if why else "")
        return Missing(NOT_LISTED, message, stalled=not patient)
    listings = [read_stamps(worker_view.launcher.stamps or "") for worker_view in answered if worker_view.launcher]
    stamps = {stamp for listing in listings for stamp in listing}
    stamps |= {(c.step, c.written_ns) for view in world.views.values() for c in view.checkpoints if c.written_ns}
    if any(len(listing) >= MAX_STAMPS and min(listing)[0] > step for listing in listings):
        return _too_many(step)
    return stamps


def _too_many(step: int) -> Missing:
    message = (
        f"more than {MAX_STAMPS} checkpoints lie beyond step {step}, and Muster can exclude no more than that. Move "
        "those that are not to count out of spec.checkpoint.directory"
    )
    return Missing(TOO_MANY, message, stalled=True)


def _still_excluded(record: GangSpec, where: Resume | None, world: JobWorld, stamps: set[Stamp]) -> set[Stamp]:
    """Return the checkpoints that an earlier request excluded and that still exist, unless this one returns to their
    branch."""
    if record.branch is None or where is None:
        return set()
    target_reports = (c for view in world.views.values() for key, c in _listed(view) if key == (where.step, where.path))
    if not all(is_of_present_branch(record, c) for c in target_reports):
        return set()
    history = _history(record.branch)
    return {stamp for stamp in stamps if not history.has(*stamp)}


def _listed(view: LauncherView) -> Iterator[tuple[_Key, CheckpointReport]]:
    return (((report.step, report.path), report) for report in view.checkpoints)


def listed_seconds(world: JobWorld, record: GangSpec) -> float:
    """Return for how many seconds the checkpoint listings of all workers have been there; 0 without any."""
    committed = (world.now - record.time).total_seconds()
    ages = (view.scanned_age_seconds for view in world.views.values())
    return min((committed if age is None else age for age in ages), default=0.0)
