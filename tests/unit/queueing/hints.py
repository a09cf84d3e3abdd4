"""Random fleets on which a job waits, and what its remedies say, done word for word."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from tests.unit.lifecycle.builders import a_fleet, a_job, a_node, at
from tests.unit.queueing.builders import wants

from muster.placement.request import Request
from muster.queueing.preemption import Borrower, Preemption, WaitingForPreemption
from muster.queueing.queue import plan_steps
from muster.queueing.remedies import remedies
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Exclusion, Fleet
from muster.world.queuedecision import NotPlaced, Placed
from muster.world.views import NodeView, Taint

TAINT = Taint("sick", "", "NoSchedule")
LEVELS = ("zone", "block", "rack")


@dataclass
class Scene:
    """A fleet with other jobs, some of which may give way, a job that waits, and perhaps another one before it."""

    fleet: Fleet
    waiting: WaitingJob
    before: list[WaitingJob]
    giving: set[str] = field(default_factory=set)

    def answer(self) -> Placed | NotPlaced:
        """What the plan says to the job."""
        preemption = Preemption({uid: Borrower(f"default/{uid}", at(0)) for uid in self.giving})
        steps = plan_steps(self.fleet, [*self.before, self.waiting], preemption=preemption)
        return dict(filter(None, steps))[self.waiting.job_uid].answer

    def starts(self) -> bool:
        """Whether the job starts, now or once others have given way."""
        return isinstance(self.answer(), Placed | WaitingForPreemption)

    def nodes_in(self, domain: str) -> list[NodeView]:
        """The nodes of a domain, such as `block z1/b2`; of the fleet for ""."""
        depth, path = LEVELS.index(domain.partition(" ")[0]) + 1 if domain else 0, domain.partition(" ")[2]
        return [n for n in self.fleet.nodes.values() if "/".join([n.labels[f"l/{e}"] for e in LEVELS][:depth]) == path]

    def holders_in(self, domain: str) -> Counter[str]:
        """How many suitable nodes there each other job holds."""
        usable = [n for n in self.nodes_in(domain) if _is_suitable(self.fleet, n)]
        return Counter(holder for node in usable for holder in self.fleet.holders(node.name))


def _is_suitable(fleet: Fleet, node: NodeView) -> bool:
    return node.ready and not node.unschedulable and not node.taints and fleet.exclusion(node.name) is None


def a_scene(random: Random, jobs: int) -> Scene:
    """A fleet of up to 60 nodes with so many other jobs."""
    nodes, sick = [], random.choice([0.05, 0.1, 0.3])
    for zone in range(random.randint(1, 2)):
        for block in range(random.randint(1, 3)):
            for rack in range(random.randint(1, 3)):
                labels = {"l/zone": f"z{zone}", "l/block": f"b{block}", "l/rack": f"r{rack}"}
                nodes += [a_node(f"n{len(nodes) + n}", labels=labels) for n in range(random.randint(1, 5))]
    excluded = []
    for place, node in enumerate(nodes):
        kind = random.randrange(4) if random.random() < sick else None
        changes = {0: {"unschedulable": True}, 1: {"ready": False}, 2: {"taints": (TAINT,)}}.get(kind, {})
        nodes[place] = replace(node, **changes)
        excluded += [node.name] if kind == 3 else []
    share = random.choice([0.3, 0.6, 0.9])
    held: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if random.random() < share:
            held[f"h{random.randrange(jobs)}"].add(node.name)
    fleet = a_fleet(nodes, [(level, f"l/{level}") for level in LEVELS])
    for holder, names in held.items():
        fleet.occupy(holder, holder, frozenset(names))
        fleet.names[holder] = f"default/{holder}"
    for name in excluded:
        fleet.exclude(name, Exclusion("Xid79"))
    before = [_a_request(random, "before", len(nodes))] if random.random() < 0.4 else []
    mine = replace(_a_request(random, "mine", len(nodes)), priority=-1)
    giving = {holder for holder in sorted(held) if random.random() < 0.5} if random.random() < 0.5 else set()
    return Scene(fleet, mine, before, giving)


def _a_request(random: Random, name: str, most: int) -> WaitingJob:
    size = random.choice([1, 1, 1, 2, 3])
    return wants(
        name,
        size * random.randint(1, max(1, most // 3 // size)),
        segment_size=size,
        spares=random.choice([0, 0, 0, 1]),
        required=random.choice([None, *LEVELS]),
    )


def hints_of(scene: Scene, answer: NotPlaced) -> list[str]:
    """The remedies of the job's answer."""
    request = scene.waiting.request
    placement = {
        "required": request.required,
        "segmentSize": request.segment_size if request.segment_size > 1 else None,
    }
    return remedies(a_job("mine", nodes=request.count, placement=placement), answer)


INSIDE = r"(?: in ((?:zone|block|rack) \S+?))?"
PROVISO = "(?:, as far as that (?:completes segments|is in one (?:zone|block|rack)))?"
AGAIN = r" \(delete the job and create it again\)"


def follow(scene: Scene, hints: Iterable[str]) -> None:
    """Do what the remedies about nodes and other jobs say, where they say it; each has to have something to do."""
    named: set[str] = set()
    before = {domain: scene.holders_in(domain) for domain in _domains(scene)}
    for hint in hints:
        done = [action(scene, found, before, named) for pattern, action in ACTIONS if (found := _match(pattern, hint))]
        assert len(done) == 1, hint


def _match(pattern: str, hint: str) -> re.Match[str] | None:
    return re.fullmatch(pattern.replace("INSIDE", INSIDE) + PROVISO + f"(?:{AGAIN})?", hint)


def _domains(scene: Scene) -> set[str]:
    paths = {tuple(n.labels[f"l/{e}"] for e in LEVELS) for n in scene.fleet.nodes.values()}
    return {"", *(f"{LEVELS[depth]} {'/'.join(path[: depth + 1])}" for path in paths for depth in range(3))}


def _nothing(*_: object) -> None:
    """A remedy that only says what is missing."""


def _end(scene: Scene, found: re.Match[str], before: dict[str, Counter[str]], named: set[str]) -> None:
    holder, count, domain = found[1].removeprefix("default/"), int(found[2]), found[3] or ""
    assert before[domain][holder] == count, found[0]
    named.add(holder)
    scene.fleet.occupy(holder, holder, frozenset())


def _end_others(scene: Scene, found: re.Match[str], before: dict[str, Counter[str]], named: set[str]) -> None:
    jobs, count, domain = int(found[1]), int(found[2]), found[3] or ""
    others = {holder: held for holder, held in before[domain].items() if holder not in named | scene.giving}
    assert (len(others), sum(others.values())) == (jobs, count), found[0]
    for holder in others:
        scene.fleet.occupy(holder, holder, frozenset())


def _repaired(is_meant: Callable[[Scene, NodeView], bool], **changes: object) -> Callable[..., None]:
    def action(scene: Scene, found: re.Match[str], _before: object, _named: object) -> None:
        nodes = [node for node in scene.nodes_in(found["where"] or "") if is_meant(scene, node)]
        listed = found.groupdict().get("listed")
        count = len(listed.split(", ")) + int(found["more"] or 0) if listed else int(found["count"])
        assert len(nodes) == count > 0, found[0]
        for node in nodes:
            scene.fleet.exclude(node.name, None)
            scene.fleet.put_node(replace(scene.fleet.nodes[node.name], **changes))

    return action


def _drop_before(scene: Scene, found: re.Match[str], *_: object) -> None:
    assert scene.before, found[0]
    scene.before.clear()


IN = INSIDE.replace("(?: in (", "(?: in (?P<where>")
ACTIONS: list[tuple[str, Callable[..., None]]] = [
    (r"\d+ more nodes? (?:that it can use|in \S+ \S+)", _nothing),
    (r"free nodes side by side: \d+ at a time in one domain of the innermost level", _nothing),
    (r"(default/h\d+) ends or is suspended \(holds (\d+) suitable nodes?INSIDE\)", _end),
    (r"(\d+) more jobs? or pods? ends? \(holds? (\d+) suitable nodes?INSIDE\)", _end_others),
    (rf"uncordon (?P<count>\d+) nodes?{IN}", _repaired(lambda _, node: node.unschedulable, unschedulable=False)),
    (
        rf"bring back (?P<count>\d+) nodes?{IN} that (?:is|are) not ready",
        _repaired(lambda _, n: not n.ready, ready=True),
    ),
    (
        rf"take the taint sick off (?P<count>\d+) nodes?{IN}, or tolerate it in spec.template",
        _repaired(lambda _, node: bool(node.taints), taints=()),
    ),
    (
        rf"repair (?P<listed>n\d+(?:, n\d+)*)(?: and (?P<more>\d+) more)?{IN}, "
        r"or release (?:it|them): unhealthy \(Xid79\)",
        _repaired(lambda scene, node: scene.fleet.exclusion(node.name) is not None),
    ),
    (r"default/before starts or is deleted \(\d+ nodes?INSIDE (?:is|are) reserved for it\)", _drop_before),
    (
        r"default/before is deleted or suspended before the start \(\d+ nodes?INSIDE (?:is|are) promised to it\)",
        _drop_before,
    ),
]
SMALLER = re.compile(
    r"(?:lower spec\.nodes to (\d+))?(?: or )?"
    rf"(?:leave (spec\.placement\.\w+(?: and spec\.placement\.\w+)?) out)?{AGAIN}"
)


def check_smaller(scene: Scene, hint: str) -> bool:
    """Whether the remedy is about what the job asks for; each of these ways starts it."""
    found = SMALLER.fullmatch(hint)
    if found is None:
        return False
    request = scene.waiting.request
    ways: list[Request] = []
    if found[1]:
        ways.append(replace(request, count=int(found[1])))
    if found[2]:
        required = None if "required" in found[2] else request.required
        ways.append(
            replace(request, required=required, segment_size=1 if "segmentSize" in found[2] else request.segment_size)
        )
    for way in ways:
        assert replace(scene, waiting=replace(scene.waiting, request=way)).starts(), hint
    return True
