"""Why the success of a job is suspect, although all its ranks exited with code 0. Pure.

Tests: tests/unit/lifecycle/test_ending.py.
"""

from muster.api.gang import GangSpec
from muster.api.trainingjob import CompletionRecord, CompletionResult, LaunchMode, ProgressPreset
from muster.checkpoints import resume
from muster.pods import launching
from muster.pods.warned import Warned
from muster.record import incidents
from muster.recovery import exits
from muster.recovery.last_lines import Cause, cause_of
from muster.world.job import JobWorld
from muster.world.redact import without_secrets

SUCCEEDED_AFTER_TRACEBACK = "SucceededAfterTraceback"
SUCCEEDED_WITHOUT_STEP = "SucceededWithoutStep"


def success_warnings(world: JobWorld, record: GangSpec, end: CompletionRecord) -> list[Warned]:
    """Return why the success of a job is suspect, as it ends. The exit codes alone decide the result."""
    if end.result is not CompletionResult.SUCCEEDED:
        return []
    warned = []
    raised = raised_before_success(world, record)
    if raised is not None:
        directory = world.job.spec.checkpoint.directory
        goes_on = ": it continues from its newest complete checkpoint" if directory is not None else ""
        warned.append(
            Warned(
                SUCCEEDED_AFTER_TRACEBACK,
                f"{raised[0]} ended with exit code 0, but its last lines are a traceback: {raised[1]}. Does the "
                "command hide the exit code, as `| tee` does without `set -o pipefail`? Muster goes by exit codes "
                "alone, so the job is Succeeded. If it has failed, correct the command, delete the job and create it "
                f"again{goes_on}",
            )
        )
    if is_without_step(world, record) and _expects_steps(world):
        warned.append(
            Warned(
                SUCCEEDED_WITHOUT_STEP,
                f"the job has Succeeded, but Muster saw no finished step in attempt {record.attempt}, and no complete "
                "checkpoint. Did the program train? See its log; where it did, let it report its steps "
                "(docs/reference/progress.md)",
            )
        )
    return warned


def raised_before_success(world: JobWorld, record: GangSpec) -> tuple[str, str] | None:
    """Return the first rank that ended with code 0 behind a traceback, and its exception; None: none did."""
    raising_ranks: list[tuple[bool, int, int, str]] = []
    for index, view in world.views.items():
        if view.attempt != record.attempt:
            continue
        for rank in view.ranks:
            raised = exits.raised_before_success(rank)
            if raised:
                lost_a_peer = cause_of(raised, 1, None) is Cause.LOST_PEER  # then another rank was the first to end
                raising_ranks.append((lost_a_peer, rank.rank, index, raised))
    if not raising_ranks:
        return None
    _, rank_number, worker, raised = min(raising_ranks)
    return f"rank {rank_number} (worker {worker})", without_secrets(raised, world.job.spec.containers)


def is_without_step(world: JobWorld, record: GangSpec) -> bool:
    """Whether Muster has seen no step and no checkpoint, although it looks for steps."""
    job = world.job
    looks = job.spec.launch.mode is LaunchMode.MANAGED and job.spec.progress.preset is not ProgressPreset.OFF
    resumed = record.start is not None and record.start.resume is not None
    is_seen = incidents.newest_step(world, record) is not None or any(incident.trained for incident in record.incidents)
    is_saved = job.status.checkpoint is not None or resume.newest_checkpoint(world, record) is not None
    return looks and not (resumed or is_seen or is_saved)


def _expects_steps(world: JobWorld) -> bool:
    """Whether the job's spec says that it trains: a command that only prints something has nothing of this."""
    progress, spec = world.job.spec.progress, world.job.spec
    limits = (progress.step_timeout_seconds, progress.start_timeout_seconds)
    says = (progress.preset, progress.step_pattern, spec.checkpoint.directory, *limits)
    hides = any(warning.reason == launching.EXIT_CODE_HIDDEN for warning in launching.start_warnings(world.job))
    return hides or any(value is not None for value in says)
