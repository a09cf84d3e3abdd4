"""A decision with all of its inputs, as plain JSON: it can be made again and compared with the first result."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from muster.decision.accounted import plan_with_goodput
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.world import written
from muster.world.job import JobWorld
from muster.world.redact import Redactor

_KEYS = frozenset({"world", "settings", "plan"})
_SPLIT_DEPTH = 4  # so deep lie the nodes: world, fleet, nodes, name


@dataclass(frozen=True, slots=True)
class Decided:
    """One decision with its inputs.

    Attributes:
        world: the state of the job that `decide` was given.
        settings: the settings that `decide` was given.
        plan: the result as it is performed, with goodput; None where `decide` failed.
        error: the error with which it failed; "" where it did not.
    """

    world: JobWorld
    settings: WorkerSettings
    plan: Plan | None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a decision then and of the same decision now, both as `outcome` gives them.

    If the line was `redacted`, what was taken out can change the result now.
    """

    world: JobWorld
    then: dict[str, Any]
    now: dict[str, Any]
    redacted: bool = False

    @property
    def same(self) -> bool:
        """Whether the decision has the same result now as it had then."""
        return self.then == self.now


def write(decided: Decided) -> str:
    """Return the decision as one line of JSON with the keys world, settings and plan.

    The line may have some MB for 2,048 workers. It is put together piece by piece, so that other threads need not wait.
    """
    document = {
        "world": written.write(decided.world),
        "settings": asdict(decided.settings),
        "plan": outcome(decided),
    }
    return "".join(_pieces(document, _SPLIT_DEPTH))


def replay(line: str) -> Replayed:
    """Decide again with the inputs of a line that `write` has written, or that a bundle has redacted since.

    Raises:
        ValueError: the line is not of that form; the message says why.
    """
    document = json.loads(line)
    if not isinstance(document, dict) or not document.keys() >= _KEYS:
        raise ValueError(
            "an object with world, settings and plan is needed, as GET /worlds/NAMESPACE/JOB gives it, or with world "
            "and verdict, as GET /nodes/NODE does"
        )
    world, settings = written.read(document["world"]), _adapter(WorkerSettings).validate_python(document["settings"])
    now = json.loads(json.dumps(outcome(_attempted(world, settings))))
    redacted = bool(document.get("redacted"))
    if redacted:
        now = Redactor().object(now)  # the values of all variables are gone from the recorded plan, Muster's own, too
    return Replayed(world, document["plan"], now, redacted)


def error_text(error: Exception) -> str:
    """Return an error's kind and message as text."""
    return f"{type(error).__name__}: {error}"


def outcome(decided: Decided) -> dict[str, Any]:
    """Return the decision's plan in values that `json` knows, each action with its kind in `action`; or its error."""
    plan = decided.plan
    if plan is None:
        return {"error": decided.error}
    plain: dict[str, Any] = _adapter(Plan).dump_python(plan, mode="json", by_alias=True)
    kinds = [type(action).__name__ for action in plan.actions]
    plain["actions"] = [
        {"action": kind, **plain_action} for kind, plain_action in zip(kinds, plain["actions"], strict=True)
    ]
    # Decisions that an older version recorded have nothing of these.
    for fields, name in ((plain, "unprepared"), (plain["status_report"] or {}, "without_place")):
        if not fields.get(name):
            fields.pop(name, None)
    return plain


def _attempted(world: JobWorld, settings: WorkerSettings) -> Decided:
    try:
        return Decided(world, settings, plan_with_goodput(world, decide(world, settings)))
    except Exception as error:  # noqa: BLE001 - it is what there is to tell
        return Decided(world, settings, None, error_text(error))


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if not depth or not isinstance(value, dict):
        yield json.dumps(value, separators=(",", ":"))
        return
    separator = "{"
    for key, inner in value.items():
        yield f"{separator}{json.dumps(key)}:"
        yield from _pieces(inner, depth - 1)
        separator = ","
    yield "}" if value else "{}"


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
