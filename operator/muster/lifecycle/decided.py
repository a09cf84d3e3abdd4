"""A decision with all that it was made of, as plain JSON: it can be made again and compared with what was decided then."""

import json
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world import written
from muster.world.job import JobWorld


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision: the world and the settings that `decide` was given, and its plan."""

    world: JobWorld
    settings: WorkerSettings
    plan: Plan


@dataclass(frozen=True, slots=True)
class Replayed:
    """What was decided then and what is decided now, both as `plan_as_json` writes them; `world` is what of."""

    world: JobWorld
    then: dict[str, Any]
    now: dict[str, Any]

    @property
    def same(self) -> bool:
        """Whether the plans are equal."""
        return self.then == self.now


def write(decided: Decided) -> str:
    """One line of JSON with the keys world, settings and plan."""
    document = {
        "world": written.write(decided.world),
        "settings": asdict(decided.settings),
        "plan": plan_as_json(decided.plan),
    }
    return json.dumps(document, separators=(",", ":"))


def replay(line: str) -> Replayed:
    """Decide again what `write` wrote.

    Raises:
        ValueError: this is no such line; says why.
    """
    document = json.loads(line)
    if not isinstance(document, dict) or not document.keys() >= {"world", "settings", "plan"}:
        raise ValueError("an object with world, settings and plan is needed, as GET /worlds/NAMESPACE/JOB gives them")
    world, settings = written.read(document["world"]), _adapter(WorkerSettings).validate_python(document["settings"])
    plan = json.loads(json.dumps(plan_as_json(decide(world, settings))))
    return Replayed(world, document["plan"], plan)


def plan_as_json(plan: Plan) -> dict[str, Any]:
    """A plan in values that `json` knows; each action says in `action` which one it is."""
    plain: dict[str, Any] = _adapter(Plan).dump_python(plan, mode="json", by_alias=True)
    kinds = [type(action).__name__ for action in plan.actions]
    plain["actions"] = [{"action": kind, **said} for kind, said in zip(kinds, plain["actions"], strict=True)]
    return plain


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
