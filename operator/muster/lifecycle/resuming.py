"""How a start tells the program where to go on: by which preset, and what people read of it. Pure.

The preset is chosen once, with the go, and stands in the record: all nodes add the same words, under any leader.
"""

from collections.abc import Sequence

from muster.api.gang import GangSpec, Resume
from muster.api.trainingjob import ResumePreset as Named
from muster.api.trainingjob import TrainingJob
from muster.checkpoint.names import above
from muster.launcher.expansion import expanded
from muster.lifecycle.launching import command_of, is_shell_line
from muster.lifecycle.resume import Missing
from muster.lifecycle.worker_pod import worker_container
from muster.protocol import resuming
from muster.world.job import JobWorld

UNFIT = "ResumePresetUnfit"


def preset_for(world: JobWorld, where: Resume | None) -> str | Missing:
    """The name of the preset for a start from there, "" = none; or why the one that the job names cannot do it."""
    checkpoint = world.job.spec.checkpoint
    if where is None or checkpoint.directory is None:
        return ""
    named = checkpoint.resume_preset or (Named.OFF if checkpoint.resume_argument else Named.AUTO)
    command, format_ = _command(world.job), format_of(world, where)
    if named is Named.AUTO and is_shell_line(command):
        return ""
    name = resuming.chosen(named.value, format_, command, where.path, checkpoint.directory)
    problem = unread(world.job) or resuming.problem(name, format_, where.path, checkpoint.directory)
    return Missing(UNFIT, problem, stalled=True) if problem else name


def unread(job: TrainingJob) -> str:
    """Why the words of the preset that the job names would not reach the program, and the remedy; "" = they would."""
    command, named = _command(job), job.spec.checkpoint.resume_preset
    preset = resuming.BY_NAME.get(named.value) if named is not None else None
    if preset is None or not (preset.own or preset.elsewhere) or not is_shell_line(command):
        return ""
    return (
        f"spec.checkpoint.resumePreset: {preset.name} ends the command with words, and {command[0]} does not pass on words after its line; "
        "set it to Off, and write what the program takes into that line, e.g. train.py ${MUSTER_RESUME_PATH:+--resume $MUSTER_RESUME_PATH}"
    )


def unloadable(job: TrainingJob) -> str:
    """Why the framework that the job names can go on from nothing in the job's directory, and the remedy; "" = it can."""
    checkpoint = job.spec.checkpoint
    if checkpoint.resume_preset is None or checkpoint.directory is None:
        return ""
    return resuming.never(checkpoint.resume_preset.value, checkpoint.directory)


def format_of(world: JobWorld, where: Resume) -> str:
    """How a checkpoint is written, as launchers or the status tell it; "" = nobody knows."""
    told = (
        c
        for view in world.views.values()
        for c in (*view.checkpoints, *view.elsewhere)
        if (c.step, c.path) == (where.step, where.path)
    )
    known = next((c.format for c in told if c.format), "")
    before = world.job.status.checkpoint
    if not known and before is not None and (before.step, before.path) == (where.step, where.path):
        return before.format
    return known


def in_words(job: TrainingJob, record: GangSpec) -> str:
    """What was added to the command of this attempt, and what of it the command says itself; "" where no preset was used."""
    go, directory = record.go, job.spec.checkpoint.directory or ""
    if go is None or go.resume is None or not go.resume_preset:
        return ""
    name, path = go.resume_preset, go.resume.path
    what = resuming.added(name, _command(job), path, directory)
    file, text = resuming.pointer(name, path, directory)
    parts = [f"the command ends with {_resolved(what.words, go.resume)}" if what.words else ""]
    parts += [f"which counts in place of its own {', '.join(what.against)}" if what.against else ""]
    parts += [f"it has {', '.join(what.kept)} itself" if what.kept else ""]
    parts += [f"{file} says {text}" if file else ""]
    told = ", ".join(part for part in parts if part) or "it finds the newest by itself, and nothing was added"
    return f"resumed as {name}: {told}"


def hint(job: TrainingJob, record: GangSpec, format_: str) -> str:
    """What would tell the program where to go on, where nothing does; "" = nothing is known."""
    go, name = record.go, resuming.likely(format_)
    if go is None or go.resume is None or go.resume_preset or job.spec.checkpoint.resume_argument or not name:
        return ""
    directory = job.spec.checkpoint.directory or ""
    what = resuming.added(name, _command(job), go.resume.path, directory)
    if not what.words or resuming.problem(name, format_, go.resume.path, directory):
        return ""
    return f"; with spec.checkpoint.resumePreset: {name} its command would end with {_resolved(what.words, go.resume)}"


def _resolved(words: Sequence[str], where: Resume) -> str:
    """The words as the program gets them."""
    values = {
        "MUSTER_RESUME_PATH": where.path,
        "MUSTER_RESUME_DIRECTORY": above(where.path),
        "MUSTER_RESUME_STEP": str(where.step),
    }
    return " ".join(expanded(words, values))


def _command(job: TrainingJob) -> list[str]:
    return command_of(worker_container(job) or {})
