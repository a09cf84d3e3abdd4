"""Runs the node's part of a profile: one order after the other, and their common result.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py, tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from muster.node.checker.probes import outcome
from muster.node.checker.probes.prober import Prober
from muster.protocol.profiles import STORAGE, ProfileProbes, Step

_DEVICES = Step("Devices", 10)
_ANSWER_SECONDS = 30.0
"""The time for an answer after a probe's deadline: the probe has to die, and its GPUs have to be free."""


@dataclasses.dataclass
class Findings:
    """The results of a node's probes.

    Attributes:
        key: what other figures must have in common to be compared.
        answers: the answers of all probes that had to run, in order.
        problems: the problems found, for people.
    """

    device: str
    key: Dict[str, Any]
    answers: List[Dict[str, Any]]
    seconds: float

    @property
    def problems(self) -> List[str]:
        """Return the problems, one line each."""
        return [
            "%s: %s%s" % (answer["probe"], answer["outcome"], ": " + answer["message"] if answer["message"] else "")
            for answer in self.answers
            if answer["outcome"] != outcome.DONE
        ]


def order_of(step: Step, order_id: str, device: str, devices: List[int], **more: Any) -> Dict[str, Any]:
    """Return the order for a step; `more` adds to its parameters or changes them."""
    order = {
        "id": order_id,
        "probe": step.probe,
        "device": device,
        "devices": devices,
        "deadline_seconds": step.deadline_seconds,
    }
    return {**order, **step.parameters, **more}


def steps_of(profile: ProfileProbes, device: str, directory: Optional[str]) -> List[Step]:
    """Return the node's steps after the devices have been counted."""
    return [
        dataclasses.replace(step, parameters={**step.parameters, "directory": directory})
        if step.probe == STORAGE
        else step
        for step in profile.node[device]
        if step.probe != STORAGE or directory is not None
    ]


def run(
    prober: Prober,
    profile: ProfileProbes,
    expected: Optional[int] = None,
    directory: Optional[str] = None,
    on_answer: Callable[[Dict[str, Any]], None] = lambda answer: None,
) -> Findings:
    """Run the node's part of a profile on this machine: on GPUs where the driver shows some, else on the CPU.

    Args:
        prober: a ready zygote.
        profile: its node part is run.
        expected: how many GPUs there should be; None: whatever there is.
        directory: where the storage probe writes; None: storage is not probed.
        on_answer: called with each answer when it arrives.

    Raises:
        ZygoteError: the zygote has ended.
    """
    began = time.monotonic()
    assert prober.ready is not None
    key = dict(prober.ready["key"])
    answers: List[Dict[str, Any]] = []

    def ask(step: Step, device: str, devices: List[int]) -> Dict[str, Any]:
        left = profile.limit_seconds - (time.monotonic() - began)
        if left <= 0:
            answer = _not_run(step, outcome.NO_TIME, "the profile's %g s are over" % profile.limit_seconds)
        else:
            bounded = dataclasses.replace(step, deadline_seconds=min(step.deadline_seconds, left))
            answer = in_time(
                _ask(prober, order_of(bounded, str(len(answers)), device, devices)), profile, cut=bounded != step
            )
        answers.append(answer)
        on_answer(answer)
        return answer

    counted = ask(_DEVICES, "cpu", []) if expected is None else ask(_expecting(expected), "cpu", [])
    figures = counted["parts"][0]["figures"] if counted["parts"] else {}
    devices = [gpu["index"] for gpu in figures.get("gpus", [])]
    device = "cuda" if devices else "cpu"
    if counted["outcome"] == outcome.DONE:
        if devices and key["cuda"] is None:
            answers.append(_not_run(Step("Context", 0), outcome.UNFIT, "the torch of this image has no CUDA"))
            on_answer(answers[-1])
        else:
            for step in steps_of(profile, device, directory):
                ask(step, device, devices)
    key.update(_marks(answers, device), driver=figures.get("driver"), backend="nccl" if devices else "gloo")
    return Findings(device, key, answers, round(time.monotonic() - began, 3))


def in_time(answer: Mapping[str, Any], profile: ProfileProbes, cut: bool) -> Dict[str, Any]:
    """Return the answer of a probe, or NoTime: an end at the profile's end, before the probe's own deadline, proves
    nothing. `cut`: the probe had less time than that deadline.
    """
    if not cut or answer["outcome"] != outcome.HUNG:
        return dict(answer)
    message = "it was still running when the profile's %g s were over" % profile.limit_seconds
    return {**answer, "outcome": outcome.NO_TIME, "message": message, "parts": []}


def _expecting(expected: int) -> Step:
    return dataclasses.replace(_DEVICES, parameters={"expected": expected})


def _ask(prober: Prober, order: Dict[str, Any]) -> Dict[str, Any]:
    prober.send(order)
    limit = order["deadline_seconds"] + _ANSWER_SECONDS
    until = time.monotonic() + limit
    while True:
        answer = prober.receive(until - time.monotonic())
        if answer is None:
            step = Step(order["probe"], 0)
            return {**_not_run(step, outcome.HUNG, "the zygote has not answered"), "seconds": limit}
        if answer.get("id") == order["id"]:
            return {"probe": order["probe"], **answer}


def _not_run(step: Step, name: str, message: str) -> Dict[str, Any]:
    return {"probe": step.probe, "device": "node", "outcome": name, "message": message, "seconds": 0.0, "parts": []}


def _marks(answers: List[Dict[str, Any]], device: str) -> Dict[str, Any]:
    """Return model, instruction set and transports; of different models all are named."""
    summary: Dict[str, Any] = {}
    marks = [part["mark"] for answer in answers if answer["device"] == device for part in answer["parts"]]
    for name in ("model", "instructions"):
        summary[name] = " + ".join(sorted({str(mark[name]) for mark in marks if name in mark})) or None
    summary["transports"] = sorted({name for answer in answers for name in answer.get("transports", ())})
    return summary
