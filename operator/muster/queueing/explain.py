"""Why a job waits, with numbers: for its status, its condition and `kubectl muster status`."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from muster.api.gang import MAX_SHORT_ESTIMATES
from muster.api.trainingjob import TrainingJob, Waiting, WaitingBlocker, WaitingDomain
from muster.placement.eligibility import IN_USE
from muster.queueing.limits import OverLimit
from muster.queueing.phrases import shortened_text
from muster.queueing.queue import Behind
from muster.queueing.quotas import OverQuota, amount_text
from muster.queueing.remedies import remedies, would_help
from muster.world.names import nodes_text, verb_for
from muster.world.queuedecision import NotPlaced, Payer, Placed, QueueDecision, RefusalKind

# The bounds of the status' fields.
MAX_DOMAINS = 16
MAX_BLOCKERS = 32
MAX_REMEDIES = 8
MAX_REMEDY_LENGTH = 512
MAX_MESSAGE = 1024


def waiting(job: TrainingJob, decision: QueueDecision, now: datetime) -> Waiting:
    """The numbers of a waiting job for its status; what is not known is 0 or absent."""
    old_waiting, answer = job.status.waiting, decision.answer
    short = answer.shortfall if isinstance(answer, NotPlaced) else None
    segment_size = short.segment_size if short else job.spec.placement.segment_size or 1
    domains = short.domains[:MAX_DOMAINS] if short else ()
    return Waiting(
        needs=_needs(job, answer),
        level=short.inside if short else job.spec.placement.required,
        segment_size=segment_size if segment_size > 1 else None,
        position=decision.position,
        queued=decision.queued,
        fleet=short.fleet if short else 0,
        suitable=short.suitable if short else 0,
        free=short.free if short else 0,
        reserved=decision.reserved,
        domains=[WaitingDomain(domain=d.domain, free=d.free, suitable=d.suitable) for d in domains],
        blockers=[WaitingBlocker(reason=why, nodes=count) for why, count in _blockers(answer)],
        remedies=_listed(remedies(job, answer)) if isinstance(answer, NotPlaced) else [],
        since=old_waiting.since if old_waiting and old_waiting.since else now,
    )


def _listed(ways: list[str]) -> list[str]:
    """The remedies as far as the status has room; the last entry then says how many are left out."""
    if len(ways) <= MAX_REMEDIES:
        return ways
    rest = len(ways) - MAX_REMEDIES + 1
    return [*ways[: MAX_REMEDIES - 1], f"{rest} more; the blockers say what else keeps nodes from it"]


def message(job: TrainingJob, decision: QueueDecision) -> str:
    """The sentence for a waiting job's condition: what it needs, what there is, what would help most, its place in the
    queue."""
    answer = decision.answer
    if isinstance(answer, Placed):
        return f"{nodes_text(_needs(job, answer))} {verb_for(_needs(job, answer))} promised to it"
    return _with_hints(answer.message.rstrip("."), list(_hints(job, decision, answer)))


def _with_hints(sentence: str, hints: Sequence[str]) -> str:
    """The sentence with those of its hints that fit, the first of which matter most. The others are counted."""
    shown: list[str] = []
    for hint in hints:
        if len(sentence) + len(_end([*shown, hint], len(hints))) <= MAX_MESSAGE:
            shown.append(hint)
    end = _end(shown, len(hints))
    return shortened_text(sentence, MAX_MESSAGE - len(end)) + end


def _end(shown: Sequence[str], count: int) -> str:
    """The end of a message that shows these of so many hints."""
    left_out = count - len(shown)
    count_text = [f"{left_out} hint{'s' if left_out != 1 else ''} left out"] if left_out else []
    return "".join(f"; {hint}" for hint in (*shown, *count_text))


def _hints(job: TrainingJob, decision: QueueDecision, answer: NotPlaced) -> Iterator[str]:
    helps = next(would_help(job, answer), "")
    if helps:
        yield f"would help: {shortened_text(helps, MAX_REMEDY_LENGTH)}"
    if decision.payer is Payer.JOB:
        yield (
            "it stands behind all other jobs and preempts none, for an hour to a day, because it held nodes and its "
            "pods did not start, or others were asked to leave for it and it did not start"
        )
    if decision.payer is Payer.NAMESPACE:
        yield (
            f"namespace {job.metadata.namespace} stands behind other namespaces and preempts none, for an hour to a "
            "day, because several of its jobs held nodes, or had others asked to leave, and did not start"
        )
    if decision.lent is not None:
        lent = decision.lent
        yield (
            f"{nodes_text(lent.nodes)} of what is reserved for it {verb_for(lent.nodes)} lent to jobs that have "
            f"passed it, until {lent.until:%Y-%m-%d %H:%M} UTC at the latest"
        )
    if decision.preempts_from is not None:
        yield (
            "jobs of lower priority keep their nodes for a while (spec.queueing.preemption of FleetPolicy default), "
            f"the first of them until {decision.preempts_from:%Y-%m-%d %H:%M} UTC"
        )
    if decision.too_many_before:
        yield "it preempts no job yet: too many jobs before it do, or lack nodes (docs/queueing.md)"
    if decision.queued > 1:
        yield f"number {decision.position} of {decision.queued} in the queue"
    if isinstance(answer, Behind) and not answer.is_replacement and decision.no_backfill_until is None:
        yield _passing_text(job, answer)
    if decision.no_backfill_until is not None:
        yield (
            f"backfill is closed to namespace {job.metadata.namespace} until "
            f"{decision.no_backfill_until:%Y-%m-%d %H:%M} UTC: {MAX_SHORT_ESTIMATES} estimates were too short within "
            "a day"
        )


def _passing_text(job: TrainingJob, answer: Behind) -> str:
    if answer.may_pass:
        return "it passes where, as far as is known, it ends before the reserved nodes are needed"
    if job.spec.queueing.expected_duration_seconds is None:
        return (
            "to pass where it ends before the reserved nodes are needed, give it an estimate "
            "(spec.queueing.expectedDurationSeconds)"
        )
    return (
        "it does not pass: its spec.queueing.expectedDurationSeconds is used up (raise it), or its gang was not "
        "assembled"
    )


def _needs(job: TrainingJob, answer: Placed | NotPlaced) -> int:
    if isinstance(answer, Placed):
        return len(answer.nodes) + len(answer.spares)
    if isinstance(answer, OverLimit | OverQuota):
        return answer.needs
    return answer.shortfall.needs if answer.shortfall else job.spec.nodes


def _blockers(answer: Placed | NotPlaced) -> list[tuple[str, int]]:
    """What keeps nodes from the job, with the number of nodes each, most first; the last entry sums up what is left
    out."""
    if isinstance(answer, Placed):
        return []
    blockers: list[tuple[str, int]] = []
    if isinstance(answer, OverLimit):
        limit_text = f"limit of namespace {answer.namespace}: {answer.limit}, {answer.held} held"
        blockers.append((limit_text, answer.excess))
    if isinstance(answer, OverQuota):
        hard, used = amount_text(answer.resource, answer.hard), amount_text(answer.resource, answer.used)
        quota_text = f"ResourceQuota {answer.quota}: {answer.resource} hard {hard}, used {used}"
        if not answer.quota:
            quota_text = "more ResourceQuotas than Muster reads"
        blockers.append((quota_text, answer.needs - answer.room))
    refused = answer.shortfall.refused if answer.shortfall else ()
    holders = answer.shortfall.holders if answer.shortfall else {}
    in_use = sum(group.count for group in refused if group.why.kind is RefusalKind.IN_USE)
    others = in_use - sum(holders.values())
    blockers += [(f"{IN_USE} by {holder}", count) for holder, count in holders.items()]
    blockers += [(f"{IN_USE} by others" if holders else f"{IN_USE}", others)] if others > 0 else []
    blockers += [(group.why.message, group.count) for group in refused if group.why.kind is not RefusalKind.IN_USE]
    ordered = sorted(blockers, key=lambda item: (-item[1], item[0]))
    if len(ordered) > MAX_BLOCKERS:
        rest = ordered[MAX_BLOCKERS - 1 :]
        return [*ordered[: MAX_BLOCKERS - 1], (f"{len(rest)} more reasons", sum(count for _, count in rest))]
    return ordered
