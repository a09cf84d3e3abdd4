"""Parses orders, a line of JSON each, and refuses bad ones: a zygote must survive every input.

Tests: tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any, Dict, List, Mapping, Optional, Tuple

from muster.node.checker.probes.catalog import Probe

MAX_LINE_BYTES = 1024 * 1024  # room for what the processes of a large gang put
MAX_DEADLINE_SECONDS = 3600.0
MAX_CREW = 64
_MAX_ID_CHARACTERS = 128
_MAX_ROWS = 64  # rows of a table in an order
_MOST_BYTES = 2**40
_MOST_ROWS = 2**17  # rows of a matrix
_TYPES = ("bfloat16", "float16", "float32", "float64")
_WHOLE = {
    "size": (1, _MOST_ROWS),
    "bytes": (4, _MOST_BYTES),
    "reserve_bytes": (0, _MOST_BYTES),
    "chunk_bytes": (4, 2**33),
    "patterns": (1, 3),
    "rounds": (1, 100_000),
    "seeds": (1, 4096),
    "nodes": (1, 65_536),
    "node_rank": (0, 65_535),
    "port": (1, 65_535),
    "expected": (0, MAX_CREW),
}
_MAY_BE_NONE = ("bytes", "expected")
_MAX_ENVIRONMENT = 64
# Variables that steer the libraries of an all-reduce, and none that makes a process run other code.
_VARIABLE = re.compile(r"(?:NCCL|GLOO|FI|UCX|TORCH_NCCL)_[A-Z0-9_]{1,64}")
_FILES = re.compile(r"PLUGIN|_FILE$|_PATH$")


class OrderError(ValueError):
    """The order makes no sense; the message says why. `order_id` is known where it could be read."""

    def __init__(self, message: str, order_id: Optional[str] = None) -> None:
        super().__init__(message)
        self.order_id = order_id


@dataclasses.dataclass(frozen=True)
class Order:
    """One probe to run.

    Attributes:
        devices: NVML's indexes of the devices; none on a CPU.
        processes: number of processes that run the probe on this node.
        parameters: all parameters of the order, including the probe's own.
    """

    order_id: str
    probe: str
    device: str
    devices: Tuple[int, ...]
    processes: int
    deadline_seconds: float
    environment: Dict[str, str]
    parameters: Dict[str, Any]

    @property
    def cuda(self) -> bool:
        """Whether the probe runs on GPUs."""
        return self.device == "cuda"


@dataclasses.dataclass(frozen=True)
class Cancel:
    """The request to cancel an order at once; `order_id` None: the running one."""

    order_id: Optional[str]


@dataclasses.dataclass(frozen=True)
class Meet:
    """All that the processes of an order have put on other nodes so far; each message holds everything."""

    order_id: str
    puts: Tuple[Dict[str, Any], ...]


def parse(line: bytes, probes: Mapping[str, Probe]) -> "Order | Cancel | Meet":
    """Read an order.

    {"id", "probe", "device": "cpu" | "cuda", "devices": [0, 1], "deadline_seconds", ...what the probe needs,
    "processes": 2 (on a CPU, where a probe runs in several), "environment": {"NCCL_...": "..."}},
    {"cancel": id or null}, or {"meet": id, "puts": [{"rank", "key", "value", "add"}]}.

    Raises:
        OrderError: the order makes no sense.
    """
    try:
        order = json.loads(line)
    except ValueError as error:
        raise OrderError("no JSON: %s" % error) from error
    if not isinstance(order, dict):
        raise OrderError("no JSON object")
    if "cancel" in order:
        return Cancel(None if order["cancel"] is None else str(order["cancel"]))
    if "meet" in order:
        return Meet(str(order["meet"]), _puts(order.get("puts")))
    order_id = order.get("id")
    if not isinstance(order_id, str) or not 0 < len(order_id) <= _MAX_ID_CHARACTERS:
        raise OrderError("id must be a text of 1 to %d characters" % _MAX_ID_CHARACTERS)
    try:
        return _checked(order_id, order, probes)
    except (TypeError, KeyError, ValueError) as error:
        raise OrderError(str(error), order_id) from error


def _puts(puts: Any) -> Tuple[Dict[str, Any], ...]:
    kinds = {"rank": int, "key": str, "value": str, "add": int}
    for put in puts if isinstance(puts, list) else [None]:
        if not isinstance(put, dict) or {name: type(value) for name, value in put.items()} != kinds:
            raise OrderError("puts must be a list of objects with rank, key, value and add")
    return tuple(puts)


def _checked(order_id: str, order: Dict[str, Any], probes: Mapping[str, Probe]) -> Order:
    name, device = order.get("probe"), order.get("device")
    deadline: Any = order.get("deadline_seconds")
    probe = probes.get(str(name))
    if probe is None:
        raise ValueError("there is no probe %r; there are %s" % (name, ", ".join(sorted(probes))))
    if device not in ("cpu", "cuda"):
        raise ValueError("device must be cpu or cuda, not %r" % device)
    if not _is_number(deadline) or not 0 < deadline <= MAX_DEADLINE_SECONDS:
        raise ValueError("deadline_seconds must be more than 0 and at most %g" % MAX_DEADLINE_SECONDS)
    missing = [need for need in probe.needs if need not in order]
    if missing:
        raise ValueError("%s needs %s" % (name, ", ".join(missing)))
    for parameter, value in order.items():
        _check(parameter, value)
    if order.get("node_rank", 0) >= order.get("nodes", 1):
        raise ValueError("node_rank must be less than nodes")
    if order.get("nodes", 1) > 1 and not (isinstance(order.get("master"), str) and "port" in order):
        raise ValueError("more than one node need master and port")
    devices, processes = _crew(order, device, probe)
    return Order(order_id, str(name), device, devices, processes, float(deadline), _environment(order), order)


def _check(parameter: str, value: Any) -> None:
    """Refuse a parameter on which a probe would fail: such a failure must not look like the node's fault."""
    if parameter.endswith("seconds"):
        if not _is_number(value) or not 0 <= value <= MAX_DEADLINE_SECONDS:
            raise ValueError("%s must be a number of seconds up to %g" % (parameter, MAX_DEADLINE_SECONDS))
    elif parameter in _WHOLE:
        least, most = _WHOLE[parameter]
        if not _is_integer(value, least, most) and not (value is None and parameter in _MAY_BE_NONE):
            raise ValueError("%s must be a whole number from %d to %d" % (parameter, least, most))
    elif parameter == "directory":
        if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
            raise ValueError("directory must be an absolute path")
    elif parameter == "sizes":
        if not _is_table(value, 2) or not all(_is_integer(n, 1, _MOST_BYTES) for row in value for n in row):
            raise ValueError("sizes must be a list of [bytes, repeats]")
    elif parameter == "shapes":
        good = _is_table(value, 4) and all(row[0] in _TYPES for row in value)
        if not good or not all(_is_integer(n, 1, _MOST_ROWS) for row in value for n in row[1:]):
            raise ValueError(
                "shapes must be a list of [type, rows, inner, columns], type one of %s" % ", ".join(_TYPES)
            )


def _crew(order: Dict[str, Any], device: str, probe: Probe) -> Tuple[Tuple[int, ...], int]:
    devices: List[Any] = order.get("devices", [])
    if not isinstance(devices, list) or any(type(index) is not int or index < 0 for index in devices):
        raise ValueError("devices must be a list of indexes")
    if len(set(devices)) != len(devices) or len(devices) > MAX_CREW:
        raise ValueError("devices must be different ones, %d at most" % MAX_CREW)
    if not probe.on_devices:
        return (), 1
    if device == "cuda":
        if not devices:
            raise ValueError("no devices are named")
        return tuple(devices), len(devices)
    processes = order.get("processes", 1)
    if devices or type(processes) is not int or not 1 <= processes <= MAX_CREW:
        raise ValueError("on a CPU there are no devices, and processes are 1 to %d" % MAX_CREW)
    return (), processes


def _environment(order: Dict[str, Any]) -> Dict[str, str]:
    environment = order.get("environment", {})
    if not isinstance(environment, dict) or len(environment) > _MAX_ENVIRONMENT:
        raise ValueError("environment must be an object of at most %d variables" % _MAX_ENVIRONMENT)
    for name, value in environment.items():
        if not _VARIABLE.fullmatch(name) or _FILES.search(name) or not isinstance(value, str):
            raise ValueError("%s must not be set: only texts for NCCL, gloo, libfabric and UCX, and no files" % name)
    return dict(environment)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_integer(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _is_table(value: Any, columns: int) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) <= _MAX_ROWS
        and all(isinstance(row, list) and len(row) == columns for row in value)
    )
