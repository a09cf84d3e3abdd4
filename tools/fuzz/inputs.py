"""Inputs as data: what comes when. A round of them is kept in a file and played again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESOURCES: Mapping[str, str] = {
    "TrainingJob": "trainingjobs",
    "Template": "trainingjobs",
    "Gang": "gangs",
    "NodeHealth": "nodehealths",
    "FleetPolicy": "fleetpolicies",
    "Node": "nodes",
    "Pod": "pods",
    "Lease": "leases",
    "PriorityClass": "priorityclasses",
}
REPORT, CHECK, REQUEST = "Report", "CheckReport", "Request"
KINDS = (*RESOURCES, REPORT, CHECK, REQUEST)
TOKEN = "{token}"


class RoundError(ValueError):
    """A file that holds no round; says why."""


@dataclass(frozen=True)
class Sender:
    """The pod whose token a report or a request carries."""

    namespace: str
    name: str
    uid: str
    node: str
    service_account: str = "default"


@dataclass(frozen=True)
class Input:
    """One thing that comes.

    Attributes:
        at: seconds into the round.
        document: an object of the API server, or the body of a report.
        data: the bytes of a report's body, or of a connection, as latin-1, instead of a document.
        mutated: whether anything was changed in it; others come so that those have company.
    """

    at: float
    kind: str
    document: Any = None
    data: str | None = None
    sender: Sender | None = None
    mutated: bool = True


@dataclass(frozen=True)
class Round:
    """All that comes in one small life."""

    seed: int
    inputs: list[Input]


def write(path: Path, told: Round, failure: str = "") -> None:
    """Keep a round, and what it showed."""
    inputs = [{key: value for key, value in asdict(one).items() if value is not None} for one in told.inputs]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"seed": told.seed, "failure": failure, "inputs": inputs}, indent=1) + "\n")


def read(path: Path) -> Round:
    """A round that was kept.

    Raises:
        RoundError: it cannot be read, or has an input of no known kind.
    """
    try:
        found = json.loads(path.read_text())
        inputs = [Input(**{**one, "sender": _sender(one.get("sender"))}) for one in found["inputs"]]
        told = Round(int(found["seed"]), inputs)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RoundError(f"{path} holds no round: {error}") from error
    for number, one in enumerate(told.inputs):
        if one.kind not in KINDS:
            raise RoundError(f"{path}: inputs[{number}].kind is {one.kind!r}; there are {', '.join(KINDS)}")
    return told


def _sender(found: Mapping[str, str] | None) -> Sender | None:
    return None if found is None else Sender(**found)
