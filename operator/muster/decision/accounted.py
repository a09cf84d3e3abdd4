"""Add goodput to a plan: the account to the record that it commits, figures to the status. Pure.

A decision is made without them and reads none of them, so that a defect there changes no decision. The account is added
before the write, because a phase is counted in the very write that ends it (docs/decisions/0025, 0076).
"""

from dataclasses import replace

from muster.api.gang import GangSpec
from muster.api.goodput import Account
from muster.api.trainingjob import CompletionResult, TrainingJobStatus
from muster.goodput.account import with_account, with_held_gpus
from muster.goodput.status_goodput import goodput_of_status, incidents_of_status
from muster.lifecycle.plan import CommitGang, Plan
from muster.record.size import within_etcd_limit
from muster.status.figures import compute_or_fallback
from muster.status.job_status import published_incidents
from muster.world.job import JobWorld


def plan_with_goodput(world: JobWorld, plan: Plan) -> Plan:
    """Return the plan as it is performed: with the account in the record that it commits, and figures in the status."""
    actions = tuple(
        replace(action, spec=record_with_account(world, action.spec)) if isinstance(action, CommitGang) else action
        for action in plan.actions
    )
    return replace(plan, actions=actions, status=plan.status and status_with_figures(world, plan.status))


def record_with_account(world: JobWorld, spec: GangSpec) -> GangSpec:
    """Return the record with the account, the accelerators held and the figures of incidents, small enough for etcd.

    Where these cannot be computed, the record stays as it was decided.

    Args:
        world: of which the record was decided.
        spec: the record that is about to be committed.
    """
    return within_etcd_limit(compute_or_fallback("the account", lambda: _with_valid_account(world, spec), spec))


def _with_valid_account(world: JobWorld, spec: GangSpec) -> GangSpec:
    """Return the record with its account.

    Raises:
        ValidationError: the API server would refuse the account, because it was edited.
    """
    accounted = with_account(world, with_held_gpus(world, spec))
    if accounted.account is not None:
        Account.model_validate(accounted.account.to_json())
    return accounted


def status_with_figures(world: JobWorld, status: TrainingJobStatus) -> TrainingJobStatus:
    """Return the status with the job's goodput, and with the figures of its incidents.

    Where these cannot be computed, the status stays as it was decided, with the goodput that is published.
    """
    completion, published_completion = status.completion, world.job.status.completion
    goodput = compute_or_fallback(
        "goodput",
        lambda: goodput_of_status(
            world,
            step=status.step,
            saved=None if status.checkpoint is None else status.checkpoint.step,
            ended=completion is not None and published_completion is None,
            succeeded=completion is not None and completion.result is CompletionResult.SUCCEEDED,
            suspended=status.state == "Suspended",
        ),
        status.goodput,
    )
    status = status.model_copy(update={"goodput": goodput})
    if world.gang is None:
        return status
    record, failed = world.gang.spec, completion is not None and completion.result is CompletionResult.FAILED
    incidents = compute_or_fallback(
        "incidents",
        lambda: published_incidents(incidents_of_status(world, record, goodput, failed=failed)),
        status.incidents,
    )
    return status.model_copy(update={"incidents": incidents})
