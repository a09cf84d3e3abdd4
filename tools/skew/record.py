"""Write what the version of this tree leaves behind, as one JSON document: `python -m skew.record FILE`.

Objects are those of a simulated fleet whose operator, of this tree, leads a gang through failures to its end. Messages
have every field set. The fence file is a launcher's. Run in the tree, with it on PYTHONPATH; this file may come from a
later tree (`skew.kept`).
"""

import dataclasses
import json
import sys
import tempfile
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from muster.node.launcher.fence_file_child import claim_fence_file
from muster.protocol import checks, messages
from simulate.life import Life
from simulate.replica import Replica
from simulate.training import Script

KINDS = ("trainingjobs", "gangs", "nodehealths", "endedjobs", "repairrequests", "configmaps")
STEPS = Script(150, 1.0, 5, save_seconds=0.5)
SAMPLES: dict[type, Any] = {int: 1, float: 1.5, str: "x", bool: True}
NAMED = {"address": "10.0.0.1"}  # fields whose text has a form
REFERENCES = ("fleetpolicy", "trainingjobs")  # of examples/reference: with every field that users set
HOUR = 3600.0


def keep_history() -> None:
    """Have simulated replicas keep the history, which other simulations leave out."""
    made: Callable[[Replica], Any] | None = getattr(Replica, "_dependencies", None)
    if made is None:
        return  # the oldest releases cannot

    def with_history(replica: Replica) -> Any:
        return dataclasses.replace(made(replica), keeps_history=True)

    Replica._dependencies = with_history  # type: ignore[assignment,method-assign]  # noqa: SLF001 - no parameter is for it


def objects() -> dict[str, list[Any]]:
    """Play a job that loses a rank, then a node, and return all objects that were ever there, each with most in it."""
    keep_history()
    life = Life(1, 4, 2)
    written: dict[tuple[str, str, str], Any] = {}

    def note(resource: str, _before: Any, after: Any) -> None:
        if resource in KINDS and after is not None:
            key = resource, after["metadata"].get("namespace", ""), after["metadata"]["name"]
            written[key] = max(written.get(key, {}), after, key=lambda value: len(json.dumps(value)))

    life.server.listen(note)
    uid = life.submit("job", 2, STEPS)
    until(life, lambda: life.attempt_of(uid) >= 1)
    life.run(30.0)
    next(iter(workers(life))).ranks[0].kill()
    until(life, lambda: life.attempt_of(uid) >= 2)
    life.run(30.0)
    next(machine for machine in life.machines.values() if machine.workers).cut_power()
    until(life, lambda: life.has_ended("job"))
    life.run(HOUR / 4)
    life.close()
    return {kind: [value for key, value in written.items() if key[0] == kind] for kind in KINDS}


def written_by_users() -> dict[str, list[Any]]:
    """Return the objects of this tree's reference manifests."""
    found: dict[str, list[Any]] = {"fleetpolicies": [], "trainingjobs": []}
    for name in REFERENCES:
        for document in yaml.safe_load_all(Path("examples", "reference", f"{name}.yaml").read_text()):
            if document["kind"] in ("FleetPolicy", "TrainingJob"):
                found["fleetpolicies" if document["kind"] == "FleetPolicy" else "trainingjobs"].append(document)
    return found


def workers(life: Life) -> list[Any]:
    return [worker for machine in life.machines.values() for worker in machine.workers.values()]


def until(life: Life, holds: Callable[[], bool]) -> None:
    if not life.run_until(holds, HOUR):
        raise RuntimeError(f"not within an hour: {life.describe()}")


def sample(annotation: Any) -> Any:
    """Return a value of this type, with every field set."""
    if dataclasses.is_dataclass(annotation):
        hints = typing.get_type_hints(annotation)
        fields = (field.name for field in dataclasses.fields(annotation))
        return annotation(**{name: NAMED.get(name) or sample(hints[name]) for name in fields})  # type: ignore[operator]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return sample(next(kind for kind in arguments if kind is not type(None)))
    if origin is tuple:
        return (sample(arguments[0]),)
    if origin in (dict, typing.Mapping) or getattr(origin, "__name__", "") == "Mapping":
        return {sample(arguments[0]): sample(arguments[1])}
    return SAMPLES[annotation]


def recorded_messages() -> dict[str, Any]:
    kinds = (messages.Report, messages.Directive, checks.CheckReport, checks.CheckDirective)
    return {kind.__name__: json.loads(messages.encode(sample(kind))) for kind in kinds}


def fence_file() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, ".muster-gang")
        claim_fence_file(str(path), 3)
        return json.loads(path.read_text())


def main() -> None:
    written, manifests = objects(), written_by_users()
    objects_of_all = {kind: [*written.get(kind, []), *manifests.get(kind, [])] for kind in {**written, **manifests}}
    document = {"objects": objects_of_all, "messages": recorded_messages(), "fenceFile": fence_file()}
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
