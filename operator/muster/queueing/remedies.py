"""What would let a waiting job start, with numbers, the most promising first.

A remedy is named only where it helps, be it together with others of the list. Where the job needs one domain, the
numbers are of the nearest one, and the remedy names it.

Tests: tests/unit/queueing/test_explain.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from muster.api.trainingjob import TrainingJob
from muster.placement.explain import PASSING
from muster.placement.names import OTHERS, PODS_OF_OTHERS
from muster.placement.reasons import UNKNOWN_TOPOLOGY_LEVEL
from muster.queueing.enabling import NotEnabled, add_limit_command
from muster.queueing.limits import OverLimit
from muster.queueing.preemption import WAITING_FOR_PREEMPTION
from muster.queueing.queue import Behind
from muster.queueing.quotas import OverQuota, amount_text
from muster.world.names import nodes_text, verb_for
from muster.world.queuedecision import NotPlaced, RefusalKind, RefusedNodes, Shortfall

# So many domains and so many holders are named one by one.
MAX_NAMED = 3
_AGAIN = "(delete the job and create it again)"


def remedies(job: TrainingJob, answer: NotPlaced) -> list[str]:
    """Why the job can never start here, if so, and then everything that helps, each once."""
    return list(dict.fromkeys([*_why_never(job, answer), *would_help(job, answer)]))


def would_help(job: TrainingJob, answer: NotPlaced) -> Iterator[str]:
    """The remedies that help, the most promising first."""
    short = answer.shortfall
    if answer.reason == UNKNOWN_TOPOLOGY_LEVEL:
        yield "add the level to spec.topology.levels of FleetPolicy default again"
        yield f"name another level in spec.placement, or none {_AGAIN}"
    elif isinstance(answer, NotEnabled):
        yield answer.remedy
    elif answer.reason == WAITING_FOR_PREEMPTION:
        return
    elif isinstance(answer, OverLimit):
        yield from _of_limit(job, answer)
        if short is not None and answer.ever:
            yield from _more_nodes(short)
    elif isinstance(answer, OverQuota):
        yield from _of_quota(job, answer)
        if short is not None and answer.ever:
            yield from _more_nodes(short)
    elif isinstance(answer, Behind):
        for name, count in answer.reserved_for.items():
            yield _starts(name, count, "")
        if short is not None:
            yield from _smaller(job, short)
    elif short is not None:
        yield from _of_space(job, short) if short.ever else _of_fleet(job, short)


def _starts(name: str, count: int, inside: str) -> str:
    if name in OTHERS:
        return f"{name} start or are deleted ({nodes_text(count)}{inside} {verb_for(count)} reserved for them)"
    return f"{name} starts or is deleted ({nodes_text(count)}{inside} {verb_for(count)} reserved for it)"


def _of_limit(job: TrainingJob, over: OverLimit) -> Iterator[str]:
    """The remedies for a namespace's limit. For these it is known whether they are enough."""
    raised = f"raise the limit of namespace {over.namespace} from {over.limit} to"
    rest = "" if over.fits else "; that alone does not suffice"
    kept = sum(over.kept_for.values())
    now = over.limit + over.excess
    for name, count in islice(over.kept_for.items(), MAX_NAMED):
        yield f"{name} starts or is deleted ({count} of the limit of namespace {over.namespace} are kept for it)"
    if over.ever:
        later = "" if kept else f" or wait until its jobs release {nodes_text(over.excess)}"
    else:
        later = (
            f", or to {over.needs} and wait until its jobs release {nodes_text(now - over.needs)}"
            if now > over.needs
            else ""
        )
    yield f"{raised} {now} ({_limit_command(over, now)}){later}{rest}"
    room = over.limit - (over.held + kept if over.ever else 0)
    lower = room - (over.needs - job.spec.nodes)
    lower -= lower % (job.spec.placement.segment_size or 1)
    if lower > 0 and not over.is_replacement and (over.fits or not over.ever):
        yield f"lower spec.nodes to {lower} {_AGAIN}"


def _limit_command(over: OverLimit, nodes: int) -> str:
    """The command that raises a limit. A limit of 0 is mostly that of a namespace that is not listed."""
    edit = "kubectl edit fleetpolicy default"
    if over.limit:
        return edit
    return f"{add_limit_command(over.namespace, nodes)}, or where spec.queueing.limits has it, {edit}"


def _of_quota(job: TrainingJob, over: OverQuota) -> Iterator[str]:
    """The remedies for a ResourceQuota. For these it is known whether they are enough."""
    if not over.quota:
        yield f"delete or merge ResourceQuotas of namespace {job.metadata.namespace}: there are more than Muster reads"
        return
    hard, now = amount_text(over.resource, over.hard), amount_text(over.resource, over.used + over.needed)
    raised = f"raise {over.resource} of ResourceQuota {over.quota} from {hard} to {now}"
    if over.ever:
        missing = amount_text(over.resource, over.used + over.needed - over.hard)
        raised += f" or wait until pods of the namespace release {missing}"
    yield raised if over.fits else f"{raised}; that alone does not suffice"
    lower = over.room if over.ever else over.most
    lower -= over.needs - job.spec.nodes
    lower -= lower % (job.spec.placement.segment_size or 1)
    if 0 < lower < job.spec.nodes and (over.fits or not over.ever):
        yield f"lower spec.nodes to {lower} {_AGAIN}"


def _of_space(job: TrainingJob, short: Shortfall) -> Iterator[str]:
    """The remedies that make place on a fleet that could hold the job."""
    yield from _more_nodes(short)
    yield from _smaller(job, short)


def _more_nodes(short: Shortfall) -> Iterator[str]:
    """The ways in which nodes become free or fit for use."""
    yield from _gaps(short)
    yield from _ends_of_holders(short)
    yield from _repairs(short, short.nearest.refused)


def _ends_of_holders(short: Shortfall) -> Iterator[str]:
    nearest, inside, proviso = short.nearest, _inside(short), _proviso(short)
    for holder, count in islice(nearest.holders.items(), MAX_NAMED):
        yield f"{_ends(holder)} {nodes_text(count, 'suitable')}{inside}){proviso}"
    others = list(nearest.holders.values())[MAX_NAMED:]
    more, held = len(others) + nearest.more_holders, sum(others) + nearest.held_by_more
    if more:
        subject = "1 more job or pod ends (holds" if more == 1 else f"{more} more jobs or pods end (hold"
        yield f"{subject} {nodes_text(held, 'suitable')}{inside}){proviso}"


def _ends(holder: str) -> str:
    if holder in OTHERS:
        return f"{holder} end{'' if holder == PODS_OF_OTHERS else ' or are suspended'} (hold"
    return f"{holder} ends{'' if holder.startswith('pod ') else ' or is suspended'} (holds"


def _why_never(job: TrainingJob, answer: NotPlaced) -> Iterator[str]:
    """Why the job would not even fit if nothing else ran; empty where something else keeps it from its nodes, too."""
    short = answer.shortfall
    if short is None or short.ever or isinstance(answer, OverLimit | OverQuota | Behind):
        return
    best, most = short.nearest.domain, _most_suitable(short)
    if short.inside and best:
        room_text = f"{short.inside} {best.domain}, the largest to it, has {nodes_text(most, 'suitable')}"
    elif short.inside:
        room_text = f"none of its {nodes_text(short.suitable, 'suitable')} is in a {short.inside}"
    else:
        room_text = f"it has {nodes_text(most, 'suitable')}"
    if most >= short.needs and short.segment_size > 1:
        room_text += f", too few of them in groups of {short.segment_size} side by side"
    never_text = "it can never start on this fleet"
    irreplaceable_text = "the fleet cannot replace them even if nothing else ran"
    yield f"{never_text if short.needs >= job.spec.nodes else irreplaceable_text}: {room_text}"


def _of_fleet(job: TrainingJob, short: Shortfall) -> Iterator[str]:
    """The remedies for a job that would not even fit if nothing else ran."""
    most = _most_suitable(short)
    lasting = [group for group in short.nearest.refused if group.why.kind not in PASSING]
    if most + sum(group.count for group in lasting if _repair(group, "")) >= short.needs:
        yield from _repairs(short, lasting)
    fewer = _fewer_accelerators(short, most)
    if fewer and short.needs >= job.spec.nodes:
        yield f"lower spec.gpusPerNode to {fewer}{_proviso(short)} {_AGAIN}"
    yield from _smaller(job, short)


def _most_suitable(short: Shortfall) -> int:
    """The number of nodes that the job could have at most if nothing else ran."""
    if not short.inside:
        return short.suitable
    return short.nearest.domain.suitable if short.nearest.domain else 0


def _fewer_accelerators(short: Shortfall, most: int) -> int:
    """The largest number of accelerators for each worker with which there would be enough nodes; 0 where there is none.
    Without that the job could have `most` nodes.
    """
    fewer = [group for group in short.nearest.refused if group.why.kind is RefusalKind.TOO_FEW_ACCELERATORS]
    for accelerators in sorted({int(group.why.subject) for group in fewer}, reverse=True):
        if accelerators > 0 and most + sum(e.count for e in fewer if int(e.why.subject) >= accelerators) >= short.needs:
            return accelerators
    return 0


def _gaps(short: Shortfall) -> Iterator[str]:
    """What is missing in the domains that could hold the job, least first."""
    if short.segment_size > 1 and any(domain.free >= short.needs for domain in short.domains):
        yield f"free nodes side by side: {short.segment_size} at a time in one domain of the innermost level"
    able = [domain for domain in short.domains if domain.suitable >= short.needs > domain.free]
    for domain in sorted(able, key=lambda d: -d.free)[:MAX_NAMED]:
        place = f"in {short.inside} {domain.domain}" if short.inside else "that it can use"
        yield f"{nodes_text(short.needs - domain.free, 'more')} {place}"


def _inside(short: Shortfall) -> str:
    """The domain whose nodes a remedy counts; "" where it counts those of the fleet."""
    return f" in {short.inside} {short.nearest.domain.domain}" if short.inside and short.nearest.domain else ""


def _proviso(short: Shortfall) -> str:
    """The proviso in remedies that count nodes of which not all may help; "" where none is needed."""
    if short.inside and not short.nearest.domain:
        return f", as far as that is in one {short.inside}"
    return ", as far as that completes segments" if short.segment_size > 1 else ""


def _smaller(job: TrainingJob, short: Shortfall) -> Iterator[str]:
    """The requests that the user could lower. A gang that runs cannot lower any."""
    if short.needs < job.spec.nodes:
        return
    nearest = short.nearest.domain
    anywhere, room = short.free, nearest.free if nearest else 0
    if not short.ever:
        anywhere, room = short.suitable, nearest.suitable if nearest else 0
    left_out = []
    if short.inside and room < short.needs <= anywhere:
        left_out.append("spec.placement.required")
    if short.segment_size > 1 and short.needs <= anywhere:
        left_out.append("spec.placement.segmentSize")
    ways = [f"lower spec.nodes to {short.fewer}"] if 0 < short.fewer < job.spec.nodes else []
    ways += [f"leave {' and '.join(left_out)} out"] if left_out else []
    if ways:
        yield f"{' or '.join(ways)} {_AGAIN}"


def _repairs(short: Shortfall, groups: Iterable[RefusedNodes]) -> Iterator[str]:
    """The remedies for refused nodes, by people or by waiting."""
    for refused in groups:
        text = _repair(refused, _inside(short))
        if text:
            yield f"{text}{_proviso(short)}{' ' + _AGAIN if refused.why.kind in _ASKED_BY_TEMPLATE else ''}"


def _repair(refused: RefusedNodes, inside: str) -> str:
    """The remedy for nodes of the domain `inside` that are refused for this reason; "" where there is none."""
    why, count, names = refused.why, refused.count, refused.named
    if names:
        rest = f" and {count - len(names)} more" if count > len(names) else ""
        return f"repair {', '.join(names)}{rest}{inside}, or release {'them' if count > 1 else 'it'}: {why}"
    remedy = _REMEDIES.get(why.kind)
    return remedy(count, why.subject, inside) if remedy is not None else ""


# From the number of nodes, the subject of the refusal and the domain. Too few accelerators are missing on purpose: only
# the job can ask for fewer (`_fewer_accelerators`).
_REMEDIES: Mapping[RefusalKind, Callable[[int, str, str], str]] = {
    RefusalKind.OUTSIDE_SCOPE: lambda count, _, inside: (
        f"have the fleet's administrators select {nodes_text(count, 'more')}{inside} "
        "in spec.scope of FleetPolicy default"
    ),
    RefusalKind.CORDONED: lambda count, _, inside: f"uncordon {nodes_text(count)}{inside}",
    RefusalKind.NOT_READY: lambda count, _, inside: (
        f"bring back {nodes_text(count)}{inside} that {verb_for(count)} not ready"
    ),
    RefusalKind.SILENT: lambda count, _, inside: f"bring back {nodes_text(count)}{inside} without a heartbeat",
    RefusalKind.TAINTED: lambda count, key, inside: (
        f"take the taint {key} off {nodes_text(count)}{inside}, or tolerate it in spec.template"
    ),
    RefusalKind.UNSELECTED: lambda count, _, inside: (
        f"let the node selector and affinity of spec.template admit {nodes_text(count, 'more')}{inside}"
    ),
    RefusalKind.TOO_SMALL: lambda count, resource, inside: (
        f"request less {resource} in spec.template, for {nodes_text(count)}{inside} with too little"
    ),
    RefusalKind.TOO_FULL: lambda count, resource, inside: (
        f"other pods give back {resource} on {nodes_text(count)}{inside}"
    ),
    RefusalKind.BOUND_DIRECTLY: lambda count, field, inside: (
        f"set binding Scheduler for {nodes_text(count)}{inside} in FleetPolicy, or leave {field} out of spec.template"
    ),
    RefusalKind.KEPT_FOR_ACCELERATORS: lambda count, _, inside: (
        f"set spec.gpusPerNode to use {nodes_text(count)}{inside} with accelerators, or have the fleet's "
        "administrators set spec.placement.acceleratorNodesForOtherJobs to WhenFree in FleetPolicy default"
    ),
    RefusalKind.AVOIDED_BY_SPEC: lambda count, _, inside: (
        f"take {nodes_text(count)}{inside} out of spec.placement.avoidNodes"
    ),
    RefusalKind.AVOIDED_AFTER_FAILURE: lambda count, _, inside: (
        f"wait until {nodes_text(count)}{inside} that failed lately {verb_for(count)} taken again, ten minutes after "
        "the failure"
    ),
    RefusalKind.RESERVED: lambda count, name, inside: _starts(name, count, inside),
    RefusalKind.PROMISED: lambda count, name, inside: (
        f"{name} {'are' if name in OTHERS else 'is'} deleted or suspended before the start "
        f"({nodes_text(count)}{inside} {verb_for(count)} promised to {'them' if name in OTHERS else 'it'})"
    ),
}
# Those whose remedy is another template, which a job cannot be given.
_ASKED_BY_TEMPLATE = {
    RefusalKind.TAINTED,
    RefusalKind.UNSELECTED,
    RefusalKind.TOO_SMALL,
    RefusalKind.BOUND_DIRECTLY,
}
