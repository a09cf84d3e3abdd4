"""`python -m verdicts record|renew|counts|replay FILE`: decisions about nodes, recorded and later compared.

Inputs come from the tests of health and of the operator's health part, from simulated fleets and lives, and from
variants of all these: later, on record, under another policy, with other decisions and facts beside them.
"""

import argparse
import contextlib
import hashlib
import json
import lzma
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.installation import InstallationProfile
from muster.health import assess, breaker, orders
from muster.health.node_decision import DEFAULTS, Plain, node_input
from muster.health.node_world import NodeWorld
from muster.health.situation import Situation
from muster.health.sources import ROWS, Rules
from muster.health.verdict import Verdict
from simulate.fleets import keeper
from simulate.fleets.life import Life, live, plan
from simulate.hashes import fix_hashes
from simulate.play import play, story
from verdicts.plain import fleet_input, fleet_result, node_result, rows_of, sketch_of
from verdicts.variants import of_tables, variants

RESULTS = {"node": node_result, "fleet": fleet_result}
TESTS = ("health", "controller/test_nodereconciler.py", "controller/test_nodemarks.py", "reports/test_marks.py")
NIGHTLY = ("health", "controller/test_nodereconciler.py")
BUSY_FLEETS, LIVES = range(1, 5), (0, 2, 5)
FILE = Path(__file__).parents[2] / "tests" / "data" / "verdicts.json.xz"
MONTHS, LEAST, MOST_ALIKE, MOST_SKETCHED, MOST_NODES = range(1, 13), 20, 3, 12, 120
ROUNDS = 3
WANTED = {"node": 11_000, "fleet": 1_500}


def _sort(one: Plain, result: Plain) -> str:
    """What an input is an example of: of many that are alike a few are enough."""
    if "rulings" in result:
        acts = Counter((each["act"], each["charge"], each["certain"]) for each in result["rulings"].values())
        pools = [(each["held"], each["yields"], each["out"]) for each in result["breaker"]["pools"]]
        return str((sorted(acts.items()), pools, result["breaker"]["used"]))
    found = [
        [each.get(part) for part in ("source", "reason", "severity", "observed")] for each in result.get("findings", ())
    ]
    last = (result.get("incidents") or [{}])[-1]
    named = [result.get(name) for name in ("state", "own", "reason", "recommended_action", "repair")]
    return str(
        (
            found,
            sorted(last),
            last.get("state"),
            last.get("clearedBy"),
            named,
            sorted(result),
            sorted(DEFAULTS.keys() & one),
        )
    )


class Recorder:
    """Keeps what the two functions are asked while tests and simulations run."""

    def __init__(self) -> None:
        self.found: dict[str, defaultdict[str, list[Plain]]] = {kind: defaultdict(list) for kind in RESULTS}
        self.refused: Counter[str] = Counter()
        self._policies: dict[int, tuple[Rules, FleetPolicySpec]] = {}
        self._sketched: Counter[tuple[Any, ...]] = Counter()
        self._is_asking = False

    def begin(self) -> None:
        from_policy, plain_assess, rule = Rules.from_policy, assess.assess, breaker.rule

        def noted(policy: FleetPolicySpec, profile: InstallationProfile = InstallationProfile.JOBS) -> Rules:
            rules = from_policy(policy, profile)
            self._policies[id(rules)] = rules, policy
            return rules

        def judged(world: NodeWorld) -> Verdict:
            verdict = plain_assess(world)
            sketch = (*sketch_of(verdict), *(name for name in DEFAULTS if getattr(world, name)))
            self._asked("node", world.rules, sketch, lambda policy: node_input(policy, world))
            return verdict

        def ruled(situation: Situation, rules: Rules, now: Any) -> Any:
            rulings, figures = rule(situation, rules, now)
            sketch = figures.out, figures.held, figures.used
            if len(situation.verdicts) <= MOST_NODES:
                self._asked("fleet", rules, sketch, lambda policy: fleet_input(policy, situation, now))
            return rulings, figures

        Rules.from_policy = noted  # type: ignore[method-assign]
        assess.assess = keeper.assess = judged  # type: ignore[attr-defined]
        breaker.rule = orders.rule = ruled  # type: ignore[attr-defined]

    def _asked(self, kind: str, rules: Rules, sketch: tuple[Any, ...], plain: Any) -> None:
        if id(rules) in self._policies and not self._is_asking and self._sketched[sketch] < MOST_SKETCHED:
            self._sketched[sketch] += 1
            self._is_asking = True
            try:
                self.add(kind, plain(self._policies[id(rules)][1]))
            finally:
                self._is_asking = False

    def add(self, kind: str, one: Plain) -> Plain | None:
        """Keep an input unless enough are alike, or the API would refuse an object of it."""
        try:
            result = RESULTS[kind](one)
        except ValidationError as error:
            self.refused[error.title] += 1
            return None
        alike = self.found[kind][_sort(one, result)]
        if one not in alike and len(alike) < MOST_ALIKE:
            alike.append(one)
        return result

    def add_variants(self) -> None:
        """Add variants of what was kept: of each sort of an input, those of one."""
        seeds = [each for each in of_tables() if self.add("node", each)]
        seeds += [alike[0] for alike in self.found["node"].values()]
        for seed in seeds:
            result = node_result(seed)
            for each in variants(seed, result):
                self.add("node", each)

    def chosen(self) -> Iterator[tuple[str, Plain, Plain]]:
        """Yield inputs with their results: those with something that is rare first, then others, as many as wanted."""
        for kind, wanted in WANTED.items():
            every = [(each, RESULTS[kind](each)) for alike in self.found[kind].values() for each in alike]
            every.sort(key=lambda pair: _digest(pair[0]))
            counts: Counter[str] = Counter()
            taken: list[tuple[Plain, Plain]] = []
            for is_rare in (True, False):
                rest = []
                for one, result in every:
                    marks = _marks(kind, one, result)
                    is_wanted = any(counts[mark] < LEAST for mark in marks) if is_rare else len(taken) < wanted
                    if is_wanted and (NOTHING not in marks or counts[NOTHING] < len(taken) / 3 - 1):
                        counts.update(marks)
                        taken.append((one, result))
                    else:
                        rest.append((one, result))
                every = rest
            yield from ((kind, one, result) for one, result in taken)


NOTHING = "healthy without a finding"


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _marks(kind: str, one: Plain, result: Plain) -> set[str]:
    """What an input is counted for."""
    if kind == "fleet":
        return {f"act {each['act']}" for each in result["rulings"].values()}
    findings = result.get("findings", [])
    marks = {
        f"state {result.get('state')}",
        f"reason {result.get('reason', '')}",
        f"action {result['recommended_action']}",
    }
    marks |= {f"reason {each['reason']}" for each in findings} | {f"row {name}" for name in rows_of(one)}
    marks |= {f"with {name}" for name in DEFAULTS if name in one}
    last = (result.get("incidents") or [{}])[-1]
    why = last.get("clearedBy", "").partition(":")[0]
    marks |= {f"cleared: {'only observed' if 'only observes' in why else why}"} if why else set()
    return marks | ({NOTHING} if result.get("state") == "Healthy" and not findings else set())


def month(seed: int) -> Plain:
    """A fleet's month, and the rulings, charges and taints in their order."""
    lines: list[str] = []
    ordered = Life._ordered  # noqa: SLF001

    def noted(self: Life, order: Any, now: float) -> None:
        ruling, effect = order.ruling, order.effect
        what = [str(ruling.act), ruling.charge, ruling.cause, ruling.certain, ruling.pool, ruling.why, effect.taint]
        lines.append(json.dumps([round(now, 3), order.name, *what, effect.avoid, str(effect.evacuate)]))
        ordered(self, order, now)

    Life._ordered = noted  # type: ignore[method-assign] # noqa: SLF001
    try:
        fleet = live(plan(seed, smallest=32, largest=64, busy=3.0))
    finally:
        Life._ordered = ordered  # type: ignore[method-assign] # noqa: SLF001
    charges = sum(json.loads(line)[3] for line in lines)
    return {"seed": seed, "nodes": fleet.plan.nodes, "orders": len(lines), "charges": charges, "digest": _digest(lines)}


def read(file: Path) -> tuple[list[tuple[str, Plain, Plain]], list[Plain]]:
    """The recorded inputs with their results, and the months."""
    kept = json.loads(lzma.decompress(file.read_bytes()))
    policies = kept["policies"]
    return [(kind, {**one, "policy": policies[one["policy"]]}, result) for kind, one, result in kept["inputs"]], kept[
        "months"
    ]


def _write(file: Path, inputs: Iterable[tuple[str, Plain, Plain]], months: list[Plain]) -> None:
    policies: list[Plain] = []
    kept = []
    for kind, one, result in inputs:
        if one["policy"] not in policies:
            policies.append(one["policy"])
        kept.append([kind, {**one, "policy": policies.index(one["policy"])}, result])
    text = json.dumps({"policies": policies, "inputs": kept, "months": months}, sort_keys=True, separators=(",", ":"))
    file.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def differences(inputs: Iterable[tuple[str, Plain, Plain]]) -> Iterator[str]:
    """Yield, for each input that is decided otherwise now, what was decided and what is."""
    for number, (kind, one, was) in enumerate(inputs):
        now = RESULTS[kind](one)
        for name in sorted(name for name in was.keys() | now.keys() if was.get(name) != now.get(name)):
            yield f"{kind} {number} {name}: was {json.dumps(was.get(name))}, is {json.dumps(now.get(name))}"


def _record(file: Path) -> None:
    recorder = Recorder()
    recorder.begin()
    tests = Path("tests/unit")
    pytest.main(["-q", "-p", "no:cacheprovider", *(str(tests / each) for each in TESTS)])
    pytest.main(["-q", "-p", "no:cacheprovider", *(str(tests / "nightly" / each) for each in NIGHTLY)])
    for seed in BUSY_FLEETS:
        live(plan(seed, days=4.0, smallest=16, largest=64, busy=10.0))
    for seed in LIVES:
        play(story(seed))
    recorder.add_variants()
    print(f"refused by the API: {dict(recorder.refused)}")
    _write(file, recorder.chosen(), [])
    _renew(file)


def _renew(file: Path) -> None:
    """Decide all inputs anew, and add variants of those that have something of which there are too few."""
    inputs = [(kind, one, RESULTS[kind](one)) for kind, one, _ in read(file)[0]]
    for _ in range(ROUNDS):
        counts, known = _counted(inputs), {_digest(one) for _, one, _ in inputs}
        seeds = [*inputs, *(("node", each, node_result(each)) for each in of_tables())]
        for kind, one, result in [each for each in seeds if any(counts[mark] < LEAST for mark in _marks(*each))]:
            for each in variants(one, result) if kind == "node" else ():
                with contextlib.suppress(ValidationError):
                    found = node_result(each)
                    marks = _marks("node", each, found)
                    if any(counts[mark] < LEAST for mark in marks - {NOTHING}) and _digest(each) not in known:
                        inputs.append(("node", each, found))
                        known.add(_digest(each))
                        counts.update(marks)
    _write(file, inputs, [month(seed) for seed in MONTHS])


def _counted(inputs: Iterable[tuple[str, Plain, Plain]]) -> Counter[str]:
    return Counter(mark for each in inputs for mark in {each[0], *_marks(*each)})


def _count(inputs: list[tuple[str, Plain, Plain]], months: list[Plain]) -> bool:
    counts = _counted(inputs)
    for mark, count in sorted(counts.items()):
        print(f"{count:6}  {mark}")
    print(f"{sum(each['nodes'] for each in months)} node-months, {sum(each['charges'] for each in months)} charges")
    asked = {f"row {row.name}" for row in ROWS} | {f"with {name}" for name in DEFAULTS}
    rare = {mark for mark in asked | counts.keys() if counts[mark] < LEAST}
    print(f"fewer than {LEAST}: {sorted(rare)}")
    return not rare and counts[NOTHING] <= counts["node"] / 3


def main() -> int:
    """Record, count or compare; 1 where something differs, or the recording is not what is asked of it."""
    fix_hashes("verdicts")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["record", "renew", "counts", "replay"])
    parser.add_argument("file", type=Path, nargs="?", default=FILE)
    arguments = parser.parse_args()
    if arguments.what == "record":
        _record(arguments.file)
    if arguments.what == "renew":
        _renew(arguments.file)
    inputs, months = read(arguments.file)
    if arguments.what != "replay":
        return 0 if _count(inputs, months) else 1
    found = list(differences(inputs))
    found += [f"month {was['seed']}: was {was}, is {now}" for was in months if (now := month(was["seed"])) != was]
    print("\n".join([*found, f"{len(found)} differences in {len(inputs)} inputs and {len(months)} months"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
