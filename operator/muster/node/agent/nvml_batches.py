"""Queries NVML in batches: runs in the child only. Answers are plain values; other modules interpret them.

What a GPU or a driver does not have (not supported, no such symbol in an old library) is left out of the answer. Two
errors accuse a GPU by themselves: lost, and reset required. Any other error accuses it only when every call about the
GPU fails. A call that fails while others succeed is reported by name, without accusing a GPU.

Tests: tests/unit/agent/test_faults.py, tests/unit/agent/test_recorded.py.
"""

import ctypes
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

Answer = dict[str, Any]

MAX_LINKS = 18
MAX_GPUS = 64

# NVML return codes.
_ABSENT = frozenset({2, 3, 6, 7, 13, 25, 26})
"""Invalid argument (an id that this driver does not know), not supported, not found, too small, no such function,
struct of another version, deprecated."""
_LOST, _RESET_REQUIRED, _CORRUPTED_INFOROM = 15, 16, 14
SICK = frozenset({_LOST, _RESET_REQUIRED})
_PROVES_NOTHING = frozenset({"nvmlDeviceGetUUID"})
"""Calls that the library answers from its memory even for a dead GPU."""

FIELDS = {
    3: "ecc_corrected",
    4: "ecc_uncorrected",
    29: "retired_sbe",
    30: "retired_dbe",
    31: "retired_pending",
    38: "nvlink_crc",
    52: "nvlink_replays",
    59: "nvlink_recoveries",
    83: "energy_mj",
    94: "pcie_replays",
    143: "remap_uncorrectable",
    144: "remap_pending",
    145: "remap_failed",
    180: "pcie_fatal",
    186: "power_mw",
    194: "slowdown_margin",
}
"""NVML field ids, all read by one call."""
RECOVERY_ACTION = 230
_LINK_RECOVERIES = 215  # NVLink 5, one per link
_VALUE_OF_TYPE = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")

XID_EVENT = 0x8
_RECOVERY_EVENTS = 0x8000 | 0x4000
_WANTED_EVENTS = XID_EVENT | _RECOVERY_EVENTS


_UNREADABLE = -1


class SickError(Exception):
    """The GPU answers that it is lost or has to be reset."""

    def __init__(self, code: int) -> None:
        super().__init__(str(code))
        self.code = code


class Batches:
    """NVML after a start; `nvml` is the module pynvml, or an object with the same functions."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        self._handles: dict[int, Any] = {}
        self._unreachable: dict[int, int] = {}
        self._links: dict[int, list[int]] = {}
        self._uuids: dict[int | None, str] = {}
        self._errors: dict[str, int] = {}
        self._tries: dict[int, int] = {}
        self._failed = False
        """Whether the last call failed by an error that is more than absence."""
        self._heard = False
        """Whether this GPU has answered a call that only the GPU itself can answer."""
        self.left_out: frozenset[int] = frozenset()
        """GPUs that are not queried."""
        self.at: tuple[int | None, float] = (None, 0.0)
        """The GPU that is being queried, and since when (monotonic)."""
        self._refused: int | None = None
        """For this GPU: the last error that is more than absence."""

    def start(self) -> Answer:
        """Initialise NVML, and return its GPUs. The answer is `init_error` where that fails."""
        nvml = self._nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            return {"init_error": int(error.value), "text": str(error)}
        answer: Answer = {"driver": self._ask(nvml.nvmlSystemGetDriverVersion) or ""}
        gpus = [self._identity(index) for index in range(self._count() or 0) if index not in self.left_out]
        return self._with_errors({**answer, "gpus": gpus})

    def fast(self) -> Answer:
        """Return what has to be known at once: which GPUs answer, and which recovery actions the driver recommends."""
        answer: Answer = {"count": self._count()}
        answer["gpus"] = [self._of_gpu(index, self._fast_of) for index in self._handles]
        for index, code in self._unreachable.items():
            answer["gpus"].append({"index": index, "error": code, "tries": self._tries[index]})
            if code not in SICK:
                self._errors["nvmlDeviceGetHandleByIndex"] = code
        return self._with_errors(answer)

    def reach(self) -> Answer:
        """Retry the GPUs that could not be reached at the start, and describe those that can be reached now."""
        return self._with_errors({"gpus": [self._identity(index) for index in sorted(self._unreachable)]})

    def normal(self) -> Answer:
        """Return everything else that costs little."""
        return self._with_errors({"gpus": [self._of_gpu(index, self._normal_of) for index in self._handles]})

    def slow(self) -> Answer:
        """Return the expensive result: InfoROM validation."""
        return self._with_errors({"gpus": [self._of_gpu(index, self._slow_of) for index in self._handles]})

    def listen(self) -> Any:
        """Return an event set for all GPUs; None where the driver has no events."""
        nvml = self._nvml
        events = self._ask(nvml.nvmlEventSetCreate)
        if events is None:
            return None
        registered = False
        for handle in self._handles.values():
            try:
                supported = self._ask(nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
                if supported & _WANTED_EVENTS:
                    nvml.nvmlDeviceRegisterEvents(handle, supported & _WANTED_EVENTS, events)
                    registered = True
            except (nvml.NVMLError, SickError):
                continue
        return events if registered else None

    def event(self, events: Any, wait_milliseconds: int) -> Answer | None:
        """Return the next event that matters: an XID, or a changed recovery action.

        Raises:
            NVMLError: the wait failed by anything but a time-out.
        """
        nvml = self._nvml
        try:
            happened = nvml.nvmlEventSetWait_v2(events, wait_milliseconds)
        except nvml.NVMLError as error:
            if error.value == nvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        if happened.eventType == XID_EVENT:
            # 0 comes from clock events (gpud #164); it is not an XID.
            code = int(happened.eventData)
            return {"xid": code, "uuid": self._uuid(happened.device)} if code > 0 else None
        return {"look": True} if happened.eventType & _RECOVERY_EVENTS else None

    def _uuid(self, handle: Any) -> str:
        """Return the UUID of the GPU of an event. A GPU that was just lost cannot be queried any more, but its handle
        is known."""
        return self._uuids.get(_address(handle), "")

    def _count(self) -> int | None:
        count = self._ask(self._nvml.nvmlDeviceGetCount)
        return None if count is None else min(int(count), MAX_GPUS)

    def _identity(self, index: int) -> Answer:
        nvml = self._nvml
        self._tries[index] = self._tries.get(index, 0) + 1
        self.at = (index, time.monotonic())
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            self._unreachable[index] = int(error.value)
            return {"index": index, "error": int(error.value), "tries": self._tries[index]}
        self._handles[index] = handle
        identity = self._of_gpu(index, self._identity_of)
        code = identity.get("error")
        if code is not None and code not in SICK:
            # Without a name it is of no use; the name is queried again.
            del self._handles[index]
            self._unreachable[index] = code
            return {**identity, "tries": self._tries[index]}
        self._unreachable.pop(index, None)
        return identity

    def _of_gpu(self, index: int, read: Callable[[int, Any], Answer]) -> Answer:
        self._reset_listening()
        self.at = (index, time.monotonic())
        try:
            answer = {"index": index, **read(index, self._handles[index])}
        except SickError as error:
            return {"index": index, "error": error.code}
        if self._refused is not None and not self._heard:
            return {"index": index, "error": self._refused}
        return answer

    def _reset_listening(self) -> None:
        self._heard, self._refused = False, None

    def _identity_of(self, index: int, handle: Any) -> Answer:
        nvml = self._nvml
        pci = self._ask(nvml.nvmlDeviceGetPciInfo, handle)
        uuid = self._ask(nvml.nvmlDeviceGetUUID, handle) or ""
        self._uuids[_address(handle)] = uuid
        self._links[index] = [link for link in range(MAX_LINKS) if self._link(handle, link) is not None]
        return {
            "uuid": uuid,
            "pci": _text(pci.busId) if pci is not None else "",
            "serial": self._ask(nvml.nvmlDeviceGetSerial, handle) or "",
            "model": self._ask(nvml.nvmlDeviceGetName, handle) or "",
            "vbios": self._ask(nvml.nvmlDeviceGetVbiosVersion, handle) or "",
        }

    def _fast_of(self, _index: int, handle: Any) -> Answer:
        fields = self._fields(handle, [RECOVERY_ACTION])
        if fields:
            return {"action": int(fields[RECOVERY_ACTION, 0])}
        # A driver without that field: any other call shows whether the GPU is still there.
        self._ask(self._nvml.nvmlDeviceGetUUID, handle)
        self._ask(self._nvml.nvmlDeviceGetPerformanceState, handle)
        return {}

    def _normal_of(self, index: int, handle: Any) -> Answer:
        nvml = self._nvml
        links = self._links.get(index, [])
        fields = self._fields(handle, [*FIELDS, *((_LINK_RECOVERIES, link) for link in links)])
        answer: Answer = {name: fields[field, 0] for field, name in FIELDS.items() if (field, 0) in fields}
        answer["link_recoveries"] = {
            str(link): fields[_LINK_RECOVERIES, link] for link in links if (_LINK_RECOVERIES, link) in fields
        }
        asked = {
            "sram_uncorrected": (nvml.nvmlDeviceGetMemoryErrorCounter, handle, 1, 0, 7),
            "repair": (nvml.nvmlDeviceGetRepairStatus, handle),
            "pcie_width": (nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
            "pcie_width_most": (nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
            "pcie_generation": (nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
            "pcie_generation_now": (nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
            "performance_state": (nvml.nvmlDeviceGetPerformanceState, handle),
            "persistence": (nvml.nvmlDeviceGetPersistenceMode, handle),
            "mig": (nvml.nvmlDeviceGetMigMode, handle),
            "clock_reasons": (nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            "margin": (nvml.nvmlDeviceGetMarginTemperature, handle),
        }
        for name, (call, *arguments) in asked.items():
            value = self._ask(call, *arguments)
            if value is not None:
                answer[name] = value
        # A link that was there and is not supported any more is down; the state of an unreadable link is unknown.
        states = {str(link): self._link(handle, link) or 0 for link in links}
        answer["links"] = {link: state for link, state in states.items() if state != _UNREADABLE}
        answer["links_unreadable"] = len(states) - len(answer["links"])
        sram = nvml.c_nvmlEccSramErrorStatus_v1_t()
        if self._ask(nvml.nvmlDeviceGetSramEccErrorStatus, handle, ctypes.byref(sram)) is not None:
            answer["sram_threshold"] = int(sram.bThresholdExceeded)
        fabric = nvml.c_nvmlGpuFabricInfo_v2_t()
        if self._ask(nvml.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(fabric)) is not None:
            answer["fabric"] = [int(fabric.state), int(fabric.status), int(fabric.healthMask)]
        return answer

    def _slow_of(self, _index: int, handle: Any) -> Answer:
        nvml = self._nvml
        try:
            nvml.nvmlDeviceValidateInforom(handle)
        except nvml.NVMLError as error:
            code = int(error.value)
            if code in SICK:
                raise SickError(code) from error
            if code == _CORRUPTED_INFOROM:
                return {"inforom": False}
            if code not in _ABSENT:
                self._errors["nvmlDeviceValidateInforom"] = code
            return {}
        return {"inforom": True}

    def _fields(self, handle: Any, asked: list[Any]) -> dict[tuple[int, int], float]:
        heard = self._heard
        values = self._ask(self._nvml.nvmlDeviceGetFieldValues, handle, asked)
        self._heard = heard  # each value has an answer of its own
        result: dict[tuple[int, int], float] = {}
        for value in values if values is not None else ():
            code = int(value.nvmlReturn)
            if code in SICK:
                raise SickError(code)
            if code == 0:
                self._heard = True
            elif code not in _ABSENT:
                self._refused = code
            if code == 0 and value.valueType < len(_VALUE_OF_TYPE):
                result[value.fieldId, value.scopeId] = getattr(value.value, _VALUE_OF_TYPE[value.valueType])
        return result

    def _link(self, handle: Any, link: int) -> int | None:
        """Return 1 for a link that is up, 0: down, -1: it cannot be read, None: there is no such link."""
        state = self._ask(self._nvml.nvmlDeviceGetNvLinkState, handle, link)
        return _UNREADABLE if self._failed else state

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self._failed = False
        try:
            answer = call(*arguments)
        except self._nvml.NVMLError as error:
            code = int(error.value)
            if code in SICK:
                raise SickError(code) from error
            if code not in _ABSENT:
                self._errors[call.__name__] = self._refused = code
                self._failed = True
            return None
        self._heard = self._heard or call.__name__ not in _PROVES_NOTHING
        return answer

    def _with_errors(self, answer: Answer) -> Answer:
        self.at = (None, 0.0)
        errors, self._errors = self._errors, {}
        return {**answer, "errors": errors} if errors else answer


def _address(handle: Any) -> int | None:
    """Return the address to which a handle points; pynvml makes a new object for it each time."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
