"""How a start tells the program where to resume: by which preset, and what users read about it. Pure.

The preset is chosen once, with the start, and stands in the record: all nodes add the same words, under any leader.
"""

from collections.abc import Sequence

from muster.api.gang import GangSpec, Resume
from muster.api.trainingjob import ResumePreset as Named
from muster.api.trainingjob import TrainingJob
from muster.checkpoints.resume import Missing
from muster.pods.launching import command_of, is_shell_line
from muster.pods.worker_pod import worker_container
from muster.protocol import resuming
from muster.protocol.checkpoint_names import above
from muster.protocol.expansion import expanded
from muster.world.job import JobWorld

UNFIT = "ResumePresetMismatch"
MISLED = "CheckpointPointerMisleads"
_ALONE = (
    "would add --resume_from_checkpoint, and the program takes its options from {file} only where nothing stands "
    "beside it: write them into the command in its place"
)
_TOLD = "MUSTER_RESUME_"  # begins the variables by which a program is told


def preset_for(world: JobWorld, where: Resume | None) -> str | Missing:
    """Return the name of the preset for a start from a checkpoint, "": none; or why the job's preset cannot do it.

    Args:
        world: the state of the job.
        where: the checkpoint; None: from scratch.
    """
    checkpoint = world.job.spec.checkpoint
    if checkpoint.directory is None:
        return ""
    if where is None:
        pointer_problem = _scratch_problem(world)
        return Missing(MISLED, pointer_problem, stalled=True) if pointer_problem else ""
    named = checkpoint.resume_preset or (Named.OFF if checkpoint.resume_argument else Named.AUTO)
    command, format_ = _command(world.job), format_of(world, where)
    if named is Named.AUTO and is_shell_line(command):
        return ""
    name = resuming.chosen(named.value, format_, command, where.path, checkpoint.directory)
    problem = why_arguments_unread(world.job) or resuming.problem(name, format_, where.path, checkpoint.directory)
    if problem:
        return Missing(UNFIT, problem, stalled=True)
    pointer_problem = "" if name else _lost_progress_problem(world, where, format_)
    return Missing(MISLED, pointer_problem, stalled=True) if pointer_problem else name


def _lost_progress_problem(world: JobWorld, where: Resume, format_: str) -> str:
    """Return why a program that no preset tells where to resume would lose its progress, and the remedy; "": it would
    not.

    Where the job says nothing about resuming, the framework's own pointer file decides.
    """
    checkpoint = world.job.spec.checkpoint
    if checkpoint.resume_preset is not None or not resuming.is_own(where.path, checkpoint.directory or ""):
        return ""
    problem = _reported_pointer_problem(world)
    if not problem:
        return ""
    preset = resuming.BY_NAME.get(resuming.likely(format_))
    corrects = preset is not None and bool(
        preset.pointer or preset.link or (preset.own and not is_shell_line(_command(world.job)))
    )
    named = (
        f"spec.checkpoint.resumePreset: {preset.name}, by which each start does that, or "
        if preset and corrects
        else ""
    )
    return (
        f"{problem}. Or set {named}{'resumePreset' if named else 'spec.checkpoint.resumePreset'}: Off, if the program "
        "goes by MUSTER_RESUME_PATH"
    )


def _scratch_problem(world: JobWorld) -> str:
    """Return why a start from scratch would fail because the framework's pointer file names an incomplete save; "":
    not.

    A preset corrects that file to name a checkpoint, and here there is none.
    """
    seen = (report for view in world.views.values() for report in view.checkpoints)
    # Workers that are no verifiers list checkpoints that were never verified.
    if world.job.spec.checkpoint.resume_preset is Named.OFF or any(
        report.verified and not report.incomplete for report in seen
    ):
        return ""
    problem = _reported_pointer_problem(world)
    return f"{problem}. Or set spec.checkpoint.resumePreset: Off, if the program does not go by it" if problem else ""


def _reported_pointer_problem(world: JobWorld) -> str:
    """Return what launchers report about the framework's pointer file, where the job does not tell the program where to
    resume.

    The result is "" where the job does, or nothing is reported.
    """
    container = worker_container(world.job) or {}
    if world.job.spec.checkpoint.resume_argument or any(
        _TOLD in str(container.get(field)) for field in ("command", "args", "env")
    ):
        return ""
    return next(filter(None, (view.checkpoint_trap for view in world.views.values())), "")


def why_arguments_unread(job: TrainingJob) -> str:
    """Return why the preset's words would not reach the program, and the remedy; "": they would, or there is no
    preset."""
    command, named = _command(job), job.spec.checkpoint.resume_preset
    preset = resuming.BY_NAME.get(named.value) if named is not None else None
    file = resuming.file_alone(preset.name, command) if preset is not None else ""
    if preset is not None and file:
        return f"spec.checkpoint.resumePreset: {preset.name} {_ALONE.format(file=file)}. Or set it to Off"
    if preset is None or not (preset.own or preset.elsewhere) or not is_shell_line(command):
        return ""
    return (
        f"spec.checkpoint.resumePreset: {preset.name} ends the command with words, and {command[0]} does not pass on "
        "words after its line; set it to Off, and write what the program takes into that line, e.g. train.py "
        "${MUSTER_RESUME_PATH:+--resume $MUSTER_RESUME_PATH}"
    )


def why_unloadable(job: TrainingJob) -> str:
    """Return why the job's framework can resume from nothing in the job's directory, and the remedy; "": it can."""
    checkpoint = job.spec.checkpoint
    if checkpoint.resume_preset is None or checkpoint.directory is None:
        return ""
    return resuming.never(checkpoint.resume_preset.value, checkpoint.directory)


def format_of(world: JobWorld, where: Resume) -> str:
    """Return the format of a checkpoint, as launchers or the status report it; "": not known."""
    reports = [
        (c.step, c.path, c.format)
        for view in world.views.values()
        for seen in (view.checkpoints, view.other_directory, view.local)
        for c in seen
    ]
    reported = next(
        (format_ for step, path, format_ in reports if format_ and (step, path) == (where.step, where.path)), ""
    )
    published = world.job.status.checkpoint
    if not reported and published is not None and (published.step, published.path) == (where.step, where.path):
        return published.format
    return reported


def resume_text(job: TrainingJob, record: GangSpec) -> str:
    """Return how this attempt's program was told where to resume, as text; "" where no preset was used."""
    go, directory = record.start, job.spec.checkpoint.directory or ""
    if go is None or go.resume is None or not go.resume_preset:
        return ""
    name, path = go.resume_preset, go.resume.path
    addition = resuming.added(name, _command(job), path, directory)
    file, text = resuming.pointer(name, path, directory)
    parts = [f"the command ends with {_resolve_arguments(addition.words, go.resume)}" if addition.words else ""]
    parts += [f"which counts in place of its own {', '.join(addition.against)}" if addition.against else ""]
    parts += [f"it has {', '.join(addition.kept)} itself" if addition.kept else ""]
    parts += [f"{file} says {text}" if file else ""]
    how = ", ".join(part for part in parts if part) or "it finds the newest by itself, and nothing was added"
    return f"resumed as {name}: {how}"


def preset_hint(job: TrainingJob, record: GangSpec, format_: str) -> str:
    """Return which preset would tell the program where to resume, where nothing does; "": no preset is known for it."""
    go, name = record.start, resuming.likely(format_)
    if go is None or go.resume is None or go.resume_preset or job.spec.checkpoint.resume_argument or not name:
        return ""
    directory = job.spec.checkpoint.directory or ""
    file = resuming.file_alone(name, _command(job))
    if file:
        return f"; spec.checkpoint.resumePreset: {name} {_ALONE.format(file=file)}"
    addition = resuming.added(name, _command(job), go.resume.path, directory)
    if not addition.words or resuming.problem(name, format_, go.resume.path, directory):
        return ""
    words = _resolve_arguments(addition.words, go.resume)
    return f"; with spec.checkpoint.resumePreset: {name} its command would end with {words}"


def _resolve_arguments(arguments: Sequence[str], where: Resume) -> str:
    """Return the words with the checkpoint's values in place of variables, as the program gets them."""
    values = {
        "MUSTER_RESUME_PATH": where.path,
        "MUSTER_RESUME_DIRECTORY": above(where.path),
        "MUSTER_RESUME_STEP": str(where.step),
    }
    return " ".join(expanded(arguments, values))


def _command(job: TrainingJob) -> list[str]:
    return command_of(worker_container(job) or {})
