"""Renders docs/reference/timeouts.md: the waits that people meet, with the values of the code.

Hundreds of constants are times; most lie between two looks, unseen. These are the ones after which a user
or an administrator sees something happen.

Tests: tests/unit/apidocs/test_timeouts.py.
"""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

from muster.answers.text_parts import duration
from muster.api.base import ApiModel
from muster.api.fleetpolicy import Queueing
from muster.api.gang import FENCE_SECONDS
from muster.api.trainingjob import Checkpoint, Recovery
from muster.burnin.conclusion import INCONCLUSIVE_SECONDS
from muster.burnin.nodes import CHECKER_SECONDS, STARTING_SECONDS
from muster.checkpoints.resume import NOT_VISIBLE_SECONDS
from muster.controller.settings import Settings
from muster.fencing.proofs import WHOLE_GANG_SECONDS
from muster.kube.lease import LeaderLease
from muster.record.attempts import FIRST_RELEASE_SECONDS
from muster.record.exclusions import EXCLUSION
from muster.recovery.budgets import BACK_OFF_FIRST_SECONDS, BACK_OFF_LIMIT_SECONDS, WINDOW
from muster.recovery.holds import LONGEST_SECONDS
from muster.recovery.starts import POD_START_SECONDS, POD_STUCK_SECONDS
from muster.status.job_status import UNSAVED_SECONDS, UNSEEN_SECONDS


class Row(NamedTuple):
    """One wait: what for, how long, what follows, and how to change it ("" where it cannot be)."""

    wait: str
    length: str
    then: str
    field: str = ""


_HEAD = """<!-- {generated} -->

# Waits and their ends

What Muster, or a part of it, waits for, how long, and what follows. Times that a field sets are its defaults; the
[reference](api.md) has their limits. What a job waits for stands in its conditions; `kubectl muster status JOB` says it
with what can be done about it.

| what is waited for | how long | then | changed by |
|---|---|---|---|
"""


def timeouts(generated: str) -> str:
    """Return the page.

    Args:
        generated: says that it is generated.
    """
    return _HEAD.format(generated=generated) + "".join(f"| {' | '.join(row)} |\n" for row in rows())


def rows() -> Iterator[Row]:
    """Yield the waits: first those of a job's start, then of its failures, then of nodes and the operator."""
    yield Row(
        "all pods of a gang on their nodes",
        _default(Queueing, "assembly_timeout_seconds"),
        "the gang gives its nodes back and waits in the queue, "
        f"{duration(FIRST_RELEASE_SECONDS)} at first, twice as long each time, up to {duration(LONGEST_SECONDS)}",
        "FleetPolicy `spec.queueing.assemblyTimeoutSeconds`",
    )
    yield Row(
        "a pod that does not come to run while others of its gang do (a slow pull)",
        duration(POD_START_SECONDS),
        "its worker moves to another node",
    )
    yield Row(
        "the checker of a node, where its pod is there and not heard",
        f"{duration(CHECKER_SECONDS)}, while it starts {duration(STARTING_SECONDS)}",
        "the gang starts without that node's test; the record has it as untested",
    )
    yield Row("all tests of a burn-in", f"{duration(INCONCLUSIVE_SECONDS)} beyond two tests", "the gang starts")
    yield Row(
        "a checkpoint that not every worker sees yet",
        duration(NOT_VISIBLE_SECONDS),
        "the newest one that all see is resumed from",
    )
    yield Row(
        "a first step, or a sign of life of any rank",
        duration(UNSEEN_SECONDS),
        "the status warns (`StepsNotSeen`, `RanksQuiet`); nothing is stopped unless `spec.progress` sets a limit",
        "`spec.progress.startTimeoutSeconds`, `stepTimeoutSeconds`",
    )
    yield Row("a first complete checkpoint", duration(UNSAVED_SECONDS), "the status warns (`NoCheckpointSeen`)")
    yield Row(
        "a silent worker, with a second witness",
        _default(Recovery, "unreachable_timeout_seconds"),
        "another node takes its place",
        "`spec.recovery.unreachableTimeoutSeconds`",
    )
    yield Row(
        "a sign of life, where many nodes or the whole gang fall silent at once",
        duration(WHOLE_GANG_SECONDS),
        "workers are replaced: before that the network or the control plane is the likelier cause",
    )
    yield Row(
        "the coordinator and the other workers, as a launcher that hears neither",
        f"{FENCE_SECONDS}s, or three steps where these take longer",
        "it ends its ranks, so that no two gangs save",
    )
    yield Row(
        "proof that the ranks of a lost worker have ended",
        f"{duration(WHOLE_GANG_SECONDS)}; in mode Plain as long as it takes",
        "they are taken for dead",
        "`spec.recovery.unfencedTimeoutSeconds`, `kubectl muster lost NODE`",
    )
    yield Row(
        "the end of a pod that is being deleted",
        f"its grace period and {duration(POD_STUCK_SECONDS)}",
        "its worker moves to another node",
    )
    yield Row(
        "a restart after three failures of the program in a row without a checkpoint",
        f"{duration(BACK_OFF_FIRST_SECONDS)}, twice as long each time, up to {duration(BACK_OFF_LIMIT_SECONDS)}",
        f"the ranks start, while the restarts of {duration(WINDOW.total_seconds())} are within their budget",
        "`spec.recovery.applicationRestartsPerDay`",
    )
    yield Row(
        "a node at which something failed, before the same job may use it again",
        duration(EXCLUSION.total_seconds()),
        "the job may be placed there",
    )
    yield Row(
        "a complete checkpoint before a drain, a suspension or another planned move",
        _default(Checkpoint, "save_timeout_seconds"),
        "the ranks are stopped without one",
        "`spec.checkpoint.saveTimeoutSeconds`, FleetPolicy `spec.jobLimits.saveTimeoutSeconds`",
    )
    yield Row(
        "the agent of a node that has reported before",
        _parameter(Settings, "agent_silence_seconds"),
        "the node takes no new jobs",
        "`MUSTER_AGENT_SILENCE_SECONDS` of the operator",
    )
    yield Row(
        "a leader that is gone without a word",
        _parameter(LeaderLease, "lease_duration"),
        "a standby leads; ranks train on meanwhile",
    )


def _parameter(kind: type, name: str) -> str:
    return duration(inspect.signature(kind).parameters[name].default)


def _default(model: type[ApiModel], field: str) -> str:
    return duration(model.model_fields[field].default)
