"""Add the goodput account to the record that a plan commits. Pure.

A decision is made without it and reads none of it, so that a defect in the account changes no decision. It is added
before the write, because a phase is counted in the very write that ends it (docs/decisions/0025, 0076).
"""

from dataclasses import replace

from muster.api.gang import GangSpec
from muster.api.goodput import Account
from muster.goodput.account import with_account, with_held_gpus
from muster.lifecycle.commit import within_etcd_limit
from muster.lifecycle.figures import compute_or_fallback
from muster.lifecycle.plan import CommitGang, Plan
from muster.world.job import JobWorld


def plan_with_account(world: JobWorld, plan: Plan) -> Plan:
    """Return the plan as it is performed: with the account in the record that it commits, if it commits one."""
    actions = (
        replace(action, spec=record_with_account(world, action.spec)) if isinstance(action, CommitGang) else action
        for action in plan.actions
    )
    return replace(plan, actions=tuple(actions)) if plan.commits else plan


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
    kept = with_account(world, with_held_gpus(world, spec))
    if kept.account is not None:
        Account.model_validate(kept.account.to_json())
    return kept
