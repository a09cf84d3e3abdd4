"""The ranks have their go, and nothing is wrong: tell how it goes. Pure."""

from muster.lifecycle import record, resume
from muster.lifecycle.assembling import support
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.facts import Facts
from muster.lifecycle.plan import Action, Announcement, ApplySupport, Plan, State, Telling
from muster.lifecycle.worker_pod import WorkerSettings, disruption_budget
from muster.world.job import JobWorld

TICK_SECONDS = 1.0


def plan(world: JobWorld, facts: Facts, settings: WorkerSettings) -> Plan:
    """Keeps what the workers share, and their fences as long as their steps need them."""
    assert facts.gang is not None
    longer = record.fenced_longer(world, facts.gang.spec)
    if longer is not None:
        return commit(world, longer)
    marked = record.marked(world, facts.gang.spec)
    if marked is not None:
        return commit(world, marked)
    noted = resume.passed_over(world.job, facts.gang.spec)
    if noted is not None:
        wish = world.job.spec.checkpoint.resume_from
        text = f"spec.checkpoint.resumeFrom {wish} came while the job trains, and is not carried out: suspend the job, then set it"
        return commit(world, noted, Announcement("ResumeFromIgnored", text, warning=True))
    budget = ApplySupport(disruption_budget(world.job))
    actions: tuple[Action, ...] = (*leftovers(world), *support(world, settings), budget)
    return Plan(actions, Telling(State.TRAINING), wake_in_seconds=TICK_SECONDS)
