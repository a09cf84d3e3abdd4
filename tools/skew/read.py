"""Read with the version of this tree what another version has left behind: `python -m skew.read FILE`.

FILE is a document of `skew.record`. Prints a JSON list of what is wrong. Run with the tree on PYTHONPATH; this file
may come from a later tree.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from muster.api.endedjob import EndedJob
from muster.api.fleethours import CONFIG_MAP, KEY, FleetHours
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.controller.history import NOTE, unpacked
from muster.kube import decode
from muster.node.launcher.fence_file_child import read_fence_file
from muster.protocol import checks, messages

MODELS: Mapping[str, Any] = {
    "trainingjobs": TrainingJob,
    "gangs": Gang,
    "nodehealths": NodeHealth,
    "endedjobs": EndedJob,
    "fleetpolicies": FleetPolicy,
}
DECODERS: Mapping[str, Callable[[bytes], Any]] = {
    "Report": messages.decode_report,
    "Directive": messages.decode_directive,
    "CheckReport": checks.decode_check_report,
    "CheckDirective": checks.decode_check_directive,
}


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what this version cannot read of another one's document, and which fields it would lose."""
    for kind, found in document["objects"].items():
        for value in found:
            name = f"{kind} {value['metadata']['name']}"
            yield from (f"{name}: {problem}" for problem in _of_object(kind, value))
    for kind, message in document["messages"].items():
        read = DECODERS[kind](json.dumps(message).encode())
        yield from (f"{kind}: {problem}" for problem in lost(message, json.loads(messages.encode(read))))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, ".muster-gang")
        path.write_text(json.dumps(document["fenceFile"]))
        read_back = json.loads(read_fence_file(str(path)))
        yield from (f"fence file: {problem}" for problem in lost(document["fenceFile"], read_back))
        if read_back["error"]:
            yield f"fence file: {read_back['error']}"


def _of_object(kind: str, value: Mapping[str, Any]) -> Iterator[str]:
    name = value["metadata"]["name"]
    if kind in MODELS:
        read = decode.custom(MODELS[kind])(json.dumps(value).encode())
        if isinstance(read, decode.Undecodable):
            yield f"unreadable: {read.error}"
            return
        parts = {part: value[part] for part in ("spec", "status") if part in value}
        yield from lost(parts, read.to_json())
    elif name == CONFIG_MAP:
        hours = json.loads(value["data"][KEY])
        yield from lost(hours, FleetHours.model_validate(hours).to_json())
    elif name == NOTE:
        unpacked(json.dumps(value).encode())


def lost(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Yield the fields that are missing or other afterwards."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name not in after:
                yield f"{path}.{name} is lost"
            else:
                yield from lost(value, after[name], f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost(one, other, f"{path}[{number}]")
    elif before != after and _moment(before) != _moment(after):
        yield f"{path} is {after!r}, and was {before!r}"


def _moment(value: Any) -> Any:
    """Return the time that a text is, which has many forms; other values as they are."""
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return value


def main() -> None:
    print(json.dumps(list(problems(json.loads(Path(sys.argv[1]).read_text())))))


if __name__ == "__main__":
    main()
