"""`python3 -m muster.replay FILE`: repeat an operator's recorded decisions, and show both results.

FILE is of the folder decisions/ of a `kubectl muster bundle`, or has the lines that `GET /worlds/NAMESPACE/JOB` or
`GET /nodes/NODE` of the operator gives; `-` is standard input.
Exit status: 0 when every repeated decision is equal to the recorded one, 1 when one differs, 2 when the file cannot be
read. No cluster is contacted.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from muster.decision.decided import Replayed, replay
from muster.health import node_decision
from muster.health.node_decision import ReplayedNode

SAME, DIFFERS, UNREADABLE = 0, 1, 2


def main(arguments: list[str]) -> int:
    """Replay the named file, or standard input; return the exit status."""
    if len(arguments) != 1 or arguments[0].startswith("--"):
        print("usage: python3 -m muster.replay FILE   (- is standard input)", file=sys.stderr)
        return UNREADABLE
    try:
        text = sys.stdin.read() if arguments[0] == "-" else Path(arguments[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        print(f"{arguments[0]}: {error}", file=sys.stderr)
        return UNREADABLE
    return _show(text.splitlines())


def _show(lines: Iterable[str]) -> int:
    status, count = SAME, 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            replayed = _replayed(line)
        except ValueError as error:
            print(f"line {number}: {error}", file=sys.stderr)
            return UNREADABLE
        count += 1
        print("\n".join(decision_lines(replayed)))
        status = status if replayed.same else DIFFERS
    if not count:
        print("no decision in it", file=sys.stderr)
        return UNREADABLE
    return status


def _replayed(line: str) -> Replayed | ReplayedNode:
    document = json.loads(line)
    is_of_node = isinstance(document, dict) and "verdict" in document
    return node_decision.replay(document) if is_of_node else replay(line)


def decision_lines(replayed: Replayed | ReplayedNode) -> Iterator[str]:
    """Describe one decision: its object, the recorded result, and the repeated result where it differs."""
    yield _title(replayed)
    describe = _plan if isinstance(replayed, Replayed) else _verdict
    if replayed.same:
        yield "  decided, then and now:"
        yield from describe(replayed.then)
    else:
        yield "  decided then:"
        yield from describe(replayed.then)
        yield "  DECIDED NOW:"
        yield from describe(replayed.now)
        yield "  differs in:"
        for name in sorted(replayed.then.keys() | replayed.now.keys()):
            then, now = replayed.then.get(name), replayed.now.get(name)
            if then != now:
                yield f"    {name}: {json.dumps(then)} -> {json.dumps(now)}"
        if replayed.redacted:
            yield "  the file is redacted: what was taken out can be the cause"
    if isinstance(replayed, ReplayedNode):
        yield f"  ordered then, by the budgets of all nodes: {_order(replayed.order)}"


def _title(replayed: Replayed | ReplayedNode) -> str:
    if isinstance(replayed, ReplayedNode):
        return f"{replayed.world.now.isoformat()} node {replayed.world.facts.node.name}"
    world = replayed.world
    attempt = f"attempt {world.gang.spec.attempt}" if world.gang else "no attempt yet"
    return f"{world.now.isoformat()} {world.job.metadata.namespace}/{world.job.metadata.name}, {attempt}"


def _verdict(verdict: dict[str, Any]) -> Iterator[str]:
    if "error" in verdict:
        yield f"    failed: {verdict['error']}"
        return
    yield f"    says {' '.join(filter(None, map(verdict.get, ('state', 'reason', 'message')))) or 'nothing'}"
    for finding in verdict.get("findings", ()):
        text = f"{finding['severity']} {finding['source']}/{finding['reason']} {finding.get('subject', '')}".rstrip()
        yield f"    finds {text}{' (only observed)' if finding.get('observed') else ''}"
    yield f"    recommends {verdict.get('recommended_action', 'None')}"
    wake = verdict.get("wake")
    yield "    judges again when something changes" + (f", or at {wake}" if wake is not None else "")


def _order(order: dict[str, Any] | None) -> str:
    if order is None:
        return "nothing new"
    ruling, effect = order["ruling"], order["effect"]
    why = f" ({ruling['why']})" if ruling["why"] else f" (charged to {ruling['cause']})" if ruling["cause"] else ""
    effects = [name for name in ("avoid", "taint", "last_choice") if effect[name]]
    evacuates = [] if effect["evacuate"] == "No" else [f"evacuate {effect['evacuate']}"]
    return f"{ruling['act']}{why}: {', '.join((*effects, *evacuates)) or 'no effect'}"


def _plan(plan: dict[str, Any]) -> Iterator[str]:
    if "error" in plan:
        yield f"    failed: {plan['error']}"
        return
    report = plan.get("status_report") or {}
    if report:
        yield "    says " + " ".join(filter(None, (report["state"], report["reason"], report["message"])))
    for action in plan["actions"]:
        yield f"    does {_action(action)}"
    for announcement in plan["announcements"]:
        yield f"    announces {announcement['reason']}: {announcement['note']}"
    wake = plan["wake_in_seconds"]
    yield "    decides again when something changes" + (f", or after {wake:g} s" if wake is not None else "")


def _action(action: dict[str, Any]) -> str:
    manifest = action.get("manifest") or action.get("pod") or {}
    if action["action"] == "CommitGang":
        spec = action["spec"]
        places = ", ".join(member.get("node") or "?" for member in spec["members"])
        return f"CommitGang attempt {spec['attempt']} ({spec['level']}, {spec['reason']}) on {places}"
    if manifest:
        metadata = manifest["metadata"]
        name = metadata.get("name") or metadata["generateName"]
        return f"{action['action']} {manifest.get('kind', '')} {name}"
    rest = " ".join(str(value) for name, value in action.items() if name != "action")
    return f"{action['action']} {rest}".rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
