"""Holds every number by which the agent measures: value, unit and source, in one table.

A fleet replaces values by a JSON file, `{"throttle.share": 0.8}`, that `MUSTER_THRESHOLDS` names (a mounted ConfigMap).
An unusable entry is reported as a problem of the agent; the rest of the file and the defaults stay in force.

Tests: tests/unit/agent/test_settings.py.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 64 * 1024


@dataclass(frozen=True)
class Threshold:
    """One row of the table."""

    value: float
    unit: str
    source: str
    least: float = 0.0
    """The smallest value that a fleet may set."""


_H200 = "measured on an H200"
_MUSTER = "Muster's choice"
_NVSENTINEL_IB = "NVSentinel's InfiniBand counters"

TABLE: Mapping[str, Threshold] = {
    # How often.
    "nvml.fast_period": Threshold(1.0, "s", f"{_MUSTER}: 0.1 ms a GPU, {_H200}", 0.05),
    "nvml.normal_period": Threshold(30.0, "s", f"{_MUSTER}: about 10 ms a GPU, {_H200}", 0.05),
    "nvml.slow_period": Threshold(3600.0, "s", f"{_MUSTER}: InfoROM validation takes 70 ms, {_H200}", 0.05),
    "nvml.retry_period": Threshold(30.0, "s", f"{_MUSTER}: a driver may be installed at any time", 0.05),
    "nvml.renewal_period": Threshold(
        21600.0, "s", "NVML sees GPUs that went only after a new start; go-nvml #152 leaks", 0.5
    ),
    "infiniband.state_period": Threshold(1.0, "s", "NVSentinel polls port states every second", 0.05),
    "infiniband.counter_period": Threshold(15.0, "s", _MUSTER, 0.05),
    "machine.period": Threshold(15.0, "s", f"{_MUSTER}: boot id, mounts, fabric manager", 0.05),
    # NVML itself.
    "nvml.deadline": Threshold(5.0, "s", f"{_MUSTER}: a batch takes 0.1 s on 8 GPUs; NVSentinel waits 45 s", 0.1),
    "nvml.slow_deadline": Threshold(30.0, "s", f"{_MUSTER}: 70 ms a GPU, {_H200}", 0.1),
    "nvml.start_deadline": Threshold(60.0, "s", f"{_MUSTER}: without persistence mode each GPU is woken first", 0.1),
    "nvml.clear": Threshold(30.0, "s", f"{_MUSTER}: NVML must answer for so long to be trusted again"),
    "nvml.hang_backoff": Threshold(
        60.0, "s", f"{_MUSTER}: a GPU at which two batches hang is left out so long, twice as long each time", 0.05
    ),
    "gpu.clear": Threshold(30.0, "s", f"{_MUSTER}: a GPU's fault must be gone for so long"),
    "gpu.unreachable": Threshold(60.0, "s", f"{_MUSTER}: a GPU must answer only errors for so long, others not"),
    "boot.grace": Threshold(
        120.0, "s", f"{_MUSTER}: after a boot the first report waits so long for NVML and ports", 0.1
    ),
    "ready.max_age": Threshold(
        60.0, "s", f"{_MUSTER}: the agent is Ready while NVML, ports and log were seen so lately", 5
    ),
    "ready.refused": Threshold(
        120.0, "s", f"{_MUSTER}: the API server may refuse requests for so long; a token may be renewed late", 5
    ),
    "sysfs.deadline": Threshold(
        60.0, "s", f"{_MUSTER}: reading a network card's sysfs may wait for its firmware's commands to time out", 1
    ),
    "sysfs.device_wait": Threshold(
        1.0, "s", f"{_MUSTER}: the other devices wait so long for a device that hangs", 0.05
    ),
    "nvml.failed": Threshold(60.0, "s", f"{_MUSTER}: NVML has worked in this boot and answers only errors for so long"),
    "nvml.unloaded": Threshold(900.0, "s", f"{_MUSTER}: the GPU Operator takes minutes for another driver"),
    "persistence.sustain": Threshold(600.0, "s", f"{_MUSTER}: nvidia-persistenced may be started again"),
    # Rates.
    "rates.episode": Threshold(
        3600.0, "s", f"{_MUSTER}: what lasts counts once in so long; three in a day weigh more", 0.1
    ),
    "rates.clear": Threshold(
        28800.0, "s", f"{_MUSTER}: a rate must be good for so long; three in a day are one in 8 h"
    ),
    "clear.growth": Threshold(
        4.0, "times", f"{_MUSTER}: what comes back within an hour must be good for so much longer, an hour at most", 1
    ),
    # Memory.
    "ecc.corrected": Threshold(50_000_000, "errors since the driver was loaded", "Meta gcm: 50,000,000 volatile"),
    "ecc.uncorrected": Threshold(
        0, "errors since the driver was loaded", "DCGM VOLATILE_DBE_DETECTED, gcm: more than 0"
    ),
    "sram.uncorrected": Threshold(0, "errors since the driver was loaded", "Azure NHC: more than 0"),
    "remap.uncorrectable": Threshold(511, "rows", "DCGM warns at 512"),
    "retired.pages": Threshold(10, "pages", "Meta gcm: more than 10 (before Ampere)"),
    # Links.
    "nvlink.recoveries": Threshold(0, "recoveries or replays in an hour", "DCGM MAX_NVLINK_ERROR = 1"),
    "nvlink.recovering": Threshold(0.5, "of the samples of a link", "NVRx, NVLink 5: more than 15 of 30"),
    "nvlink.window": Threshold(1800.0, "s", "NVRx: 30 samples, one a minute", 0.1),
    "nvlink.crc": Threshold(100, "flits/s", "DCGM: 100 CRC errors a second"),
    "fabric.sustain": Threshold(120.0, "s", f"{_MUSTER}: fabric manager registers GPUs after the driver is loaded"),
    "fabricmanager.sustain": Threshold(120.0, "s", f"{_MUSTER}: it starts after the driver is loaded"),
    "pcie.width_sustain": Threshold(120.0, "s", f"{_MUSTER}: links retrain for moments"),
    "pcie.generation_sustain": Threshold(
        600.0, "s", f"{_MUSTER}: so long at work without a pause; idle links slow down"
    ),
    "pcie.clear": Threshold(1800.0, "s", f"{_MUSTER}: width and generation must be right for so long"),
    "pcie.replays_gen1": Threshold(0.15, "replays/min and lane", "DCGM, PCIe generation 1"),
    "pcie.replays_gen2": Threshold(0.3, "replays/min and lane", "DCGM, PCIe generation 2"),
    "pcie.replays_gen3": Threshold(0.48, "replays/min and lane", "DCGM, PCIe generation 3"),
    "pcie.replays_gen4": Threshold(0.96, "replays/min and lane", "DCGM, PCIe generation 4"),
    "pcie.replays_gen5": Threshold(1.92, "replays/min and lane", "DCGM, PCIe generation 5"),
    "pcie.replays_gen6": Threshold(3.84, "replays/min and lane", "DCGM, PCIe generation 6"),
    "pcie.fatal": Threshold(0, "fatal errors since the driver was loaded", f"{_MUSTER}: PCIe calls them fatal"),
    # Heat and power.
    "temperature.sustain": Threshold(
        600.0, "s", "the margin of the driver (NVSentinel's GpuThermalMarginWatch), for 10 min"
    ),
    "temperature.margin": Threshold(
        -2, "°C", "NVSentinel: H100, GB200 and L40 slow down at -2; where field 194 is absent", -100
    ),
    "heat.clear": Threshold(3600.0, "s", f"{_MUSTER}: what comes and goes with load must be gone for so long"),
    "throttle.share": Threshold(0.6, "of the samples", "gpud: 0.6 hardware slowdowns a minute over 10 min"),
    "throttle.window": Threshold(600.0, "s", "gpud: 10 min", 0.1),
    "energy.sustain": Threshold(300.0, "s", f"{_MUSTER}: the counter stands still while power is drawn"),
    # InfiniBand.
    "infiniband.down": Threshold(0.0, "s", "NVSentinel: fatal at once; a port counts that was up in this boot"),
    "infiniband.missing": Threshold(3.0, "s", "NVSentinel: gone for three polls of a second"),
    "infiniband.closing": Threshold(
        3.0, "s", f"{_MUSTER}: a port of Ethernet whose interface is being switched off looks as if its link were lost"
    ),
    "infiniband.off": Threshold(60.0, "s", f"{_MUSTER}: an interface must be switched off for so long"),
    "infiniband.unloaded": Threshold(900.0, "s", f"{_MUSTER}: as nvml.unloaded, for the driver of a network card"),
    "infiniband.clear": Threshold(60.0, "s", f"{_MUSTER}: a port must stay up for so long"),
    "infiniband.episode": Threshold(
        900.0, "s", "NVSentinel: three in an hour weigh more; one in 15 min is that often", 0.1
    ),
    "infiniband.counters_clear": Threshold(3600.0, "s", f"{_MUSTER}: counters must be good for so long"),
    "infiniband.flaps": Threshold(2, "link_downed in 12 h", "gpud: 3 times down in 12 h"),
    "infiniband.flap_window": Threshold(43200.0, "s", "gpud: 12 h", 0.1),
    "infiniband.link_downed": Threshold(0, "in 5 min", "NVSentinel, NVRx: any increase"),
    "infiniband.excessive_buffer_overrun_errors": Threshold(0, "in 5 min", f"{_NVSENTINEL_IB}: any increase"),
    "infiniband.local_link_integrity_errors": Threshold(0, "in 5 min", f"{_NVSENTINEL_IB}: any increase"),
    "infiniband.rnr_nak_retry_err": Threshold(0, "in 5 min", f"{_NVSENTINEL_IB}: any increase"),
    "infiniband.symbol_error": Threshold(10, "per s", _NVSENTINEL_IB),
    "infiniband.link_error_recovery": Threshold(5 / 60, "per s", f"{_NVSENTINEL_IB}: 5 a minute"),
    "infiniband.port_rcv_errors": Threshold(10, "per s", _NVSENTINEL_IB),
    "infiniband.local_ack_timeout_err": Threshold(1, "per s", _NVSENTINEL_IB),
    "infiniband.port_xmit_discards": Threshold(100, "per s", _NVSENTINEL_IB),
    "infiniband.roce_slow_restart": Threshold(10, "per s", _NVSENTINEL_IB),
    # How long evidence from a log line or an event stands.
    "burst": Threshold(180.0, "s", "NVSentinel's analyzer: bursts of 3 min count once"),
    "xid.expires": Threshold(86400.0, "s", "NVSentinel's repetition rules look back 24 h"),
    "sxid.expires": Threshold(86400.0, "s", "as XIDs"),
    "disk.expires": Threshold(86400.0, "s", _MUSTER),
    "kernel.expires": Threshold(3600.0, "s", _MUSTER),
    "hardware.expires": Threshold(86400.0, "s", f"{_MUSTER}: AER, machine checks and EDAC"),
    "aer.booting": Threshold(300.0, "s", f"{_MUSTER}: drivers that start provoke errors that are not fatal"),
    "efa.clear": Threshold(3600.0, "s", f"{_MUSTER}: no command must have been lost for so long"),
    "nic.expires": Threshold(86400.0, "s", "gpud counts such a line once in 24 h"),
    # Writing.
    "write.pause": Threshold(1.0, "s", f"{_MUSTER}: never two writes within a second", 0.05),
    "write.counts": Threshold(30.0, "s", f"{_MUSTER}: counts alone are no news", 0.05),
    "write.quiet": Threshold(
        5, "writes in stock and an hour", f"{_MUSTER}: of what is no more than a rate or a count", 1
    ),
    "write.check": Threshold(600.0, "s", f"{_MUSTER}: is the object still there?", 0.5),
}


@dataclass(frozen=True)
class Thresholds:
    """The table, with a fleet's own values applied."""

    values: Mapping[str, float]

    def __getitem__(self, name: str) -> float:
        """Return the value in force.

        Raises:
            KeyError: the table has no such row.
        """
        return self.values[name]


DEFAULTS = Thresholds({name: row.value for name, row in TABLE.items()})


def overridden(text: str) -> tuple[Thresholds, tuple[str, ...]]:
    """Return the table with the values of a JSON object applied, and the problems of unusable entries."""
    try:
        asked = json.loads(text)
    except ValueError as error:
        return DEFAULTS, (f"the thresholds are no JSON ({error}): the defaults are in force",)
    if not isinstance(asked, dict):
        return DEFAULTS, ("the thresholds are no JSON object: the defaults are in force",)
    values = dict(DEFAULTS.values)
    problems = []
    for name, value in asked.items():
        row = TABLE.get(name)
        if row is None:
            problems.append(f"there is no threshold {name[:64]!r}: docs/node-agent.md lists them")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            problems.append(f"threshold {name}: {str(value)[:32]!r} is no number")
        elif value < row.least:
            problems.append(f"threshold {name}: {value:g} is less than {row.least:g} {row.unit}")
        else:
            values[name] = float(value)
    return Thresholds(values), tuple(problems)


def load(path: Path | None) -> tuple[Thresholds, tuple[str, ...]]:
    """Return the table with the values of a file applied; without a file the defaults."""
    if path is None:
        return DEFAULTS, ()
    try:
        with path.open(encoding="utf-8") as stream:
            text = stream.read(MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        return DEFAULTS, (f"the thresholds cannot be read ({error}): the defaults are in force",)
    return overridden(text)
