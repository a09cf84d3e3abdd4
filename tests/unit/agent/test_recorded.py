"""The answers that a real H200 gave (tests/fixtures/nvml-h200.json) are no evidence, in whatever batch they come."""

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tests.fakes.nvml.build import RECORDED

from muster.node.agent.gpus import Gpus
from muster.node.agent.nvml_batches import Batches
from muster.node.agent.thresholds import DEFAULTS

# What pynvml names differently from its getter, or asks with further arguments.
_NAMES = {
    "nvmlDeviceGetPciInfo": "PciInfo",
    "nvmlDeviceValidateInforom": "ValidateInforom",
    "nvmlDeviceGetNvLinkState": "NvLinkState0",
}


class Recorded:
    """Answers like pynvml, from the record of one GPU."""

    def __init__(self, recorded: dict[str, Any]) -> None:
        self._recorded = recorded
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return getattr(pynvml, name)

        def call(*arguments: Any) -> Any:
            self.asked.add(name)
            return self._answer(name, arguments)

        call.__name__ = name
        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "nvmlInit":
            return None
        if name == "nvmlDeviceGetHandleByIndex":
            return ctypes.c_void_p(1)
        if name == "nvmlSystemGetDriverVersion":
            return self._recorded["driver"]
        if name == "nvmlDeviceGetCount":
            return self._recorded["count"]
        if name == "nvmlDeviceGetFieldValues":
            return [self._field(field) for field in arguments[1]]
        if name == "nvmlDeviceGetMemoryErrorCounter":
            return self._getter(f"MemErr_uncorr_vol_loc{arguments[3]}")
        if name == "nvmlDeviceGetGpuFabricInfoV":
            recorded = self._getter("GpuFabricInfoV")
            for part in ("state", "status", "healthMask"):
                setattr(arguments[1]._obj, part, recorded[part])
            return 0
        if name == "nvmlDeviceGetSramEccErrorStatus":  # was not recorded
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        answer = self._getter(_NAMES.get(name, name.removeprefix("nvmlDeviceGet")))
        return SimpleNamespace(**answer) if isinstance(answer, dict) else answer

    def _getter(self, getter: str) -> Any:
        recorded = self._recorded["getters"][getter]
        if "error" in recorded:
            raise pynvml.NVMLError(recorded["error"])
        return recorded["ok"]

    def _field(self, field: Any) -> Any:
        number, scope = field if isinstance(field, tuple) else (field, 0)
        recorded = self._recorded["fields"].get(str(number), {"ret": 3})
        value = pynvml.c_nvmlFieldValue_t()
        value.fieldId, value.scopeId, value.nvmlReturn = number, scope, recorded["ret"]
        if recorded["ret"] == 0:
            value.valueType = recorded["type"]
            value.value.ullVal = recorded["ull"]
        return value


@pytest.fixture
def nvml() -> Any:
    return Recorded(json.loads(RECORDED.read_text()))


def test_a_healthy_gpu_is_no_evidence(nvml: Any) -> None:
    batches, gpus = Batches(nvml), Gpus(DEFAULTS, None)
    signals = list(gpus.started(batches.start()))
    for minute in range(30):
        fast, normal, slow = batches.fast(), batches.normal(), batches.slow()
        assert not any("errors" in answer for answer in (fast, normal, slow))
        signals += [*gpus.fast(fast), *gpus.normal(normal, minute * 60.0), *gpus.slow(slow)]
    # The record is one moment: its energy counter stands still, which is what that signal is for.
    assert {signal.kind for signal in signals if signal.bad} == {"EnergyCounter"}
    looked_at = {signal.kind for signal in signals}
    assert looked_at >= {"RecoveryAction", "GpuLost", "GpuCount", "EccUncorrected", "RowRemapPending", "RowRemapFailed"}
    assert looked_at >= {"RepairPending", "InfoRom", "PcieWidth", "PcieReplay", "PcieFatal", "Temperature", "Throttle"}
    assert not looked_at & {"NvLinkDown", "FabricState", "RetiredPages"}  # that GPU has none of those


def test_a_gpu_that_reads_its_record_says_who_it_is(nvml: Any) -> None:
    gpus = Gpus(DEFAULTS, None)
    list(gpus.started(Batches(nvml).start()))
    assert (gpus.driver, gpus.model, gpus.serials) == ("580.159.04", "NVIDIA H200", ["1650000000001"])
    uuid = "GPU-00000000-0000-4000-8000-000000000001"
    assert gpus.names == {"PCI:0000:00:06": uuid, "GPU 0": uuid}
    assert gpus.problem == ""


def test_margins_below_zero_are_read_as_such(nvml: Any) -> None:
    batches = Batches(nvml)
    batches.start()
    assert batches.normal()["gpus"][0]["slowdown_margin"] == -2
