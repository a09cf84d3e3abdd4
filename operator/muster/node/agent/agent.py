"""Runs the loop: it polls each part at its own pace, adds the results to the ledger, and hands changes to the writer.

One thread, which never waits for anything but its own timers and descriptors. NVML lives in a child process
(`nvml_process`), the API server behind a thread (`writer`).
"""

import math
import os
import selectors
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from muster import __version__
from muster.node.agent import kinds
from muster.node.agent.bridges import Bridges
from muster.node.agent.earlier import Earlier
from muster.node.agent.facts import Clock, FaultEvent, Signal, clean
from muster.node.agent.gpus import Gpus
from muster.node.agent.held import Held
from muster.node.agent.infiniband import InfiniBand
from muster.node.agent.inspections import LOG, NVML, PORTS, Inspections
from muster.node.agent.interfaces import NodeNetwork
from muster.node.agent.kernel_lines import FAILED_PATH, SCSI_DISK, SCSI_HOST
from muster.node.agent.kernel_log import KernelLog, LogEntry
from muster.node.agent.ledger import Ledger
from muster.node.agent.log_lines import TAKEN_AWAY, recovery_taken_back
from muster.node.agent.machine import ClockSource, FabricManager, Mounts, gpu_of_minor, gpus_of_the_driver, read_text
from muster.node.agent.nvml_process import NvmlProcess, Outstanding
from muster.node.agent.sampler import Sampler
from muster.node.agent.settings import Settings
from muster.node.agent.storage import Disks
from muster.node.agent.thresholds import Thresholds
from muster.node.agent.writer import Writer
from muster.node.log import log
from muster.serve import Metric

_FILE_PERIOD_SECONDS = 0.2
_DRAIN_PAUSE_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 1.0
_ALIVE_SECONDS = 15.0
_REACH_PAUSE = 20.0
"""The pause between two tries to reach a GPU, as a multiple of what one took. A dead GPU may delay each try by seconds,
during which the others are not polled."""
_CONFIRM_SECONDS = 5.0
_COME_UP = (kinds.IB_PORT_DOWN, kinds.FRONT_END_DOWN, kinds.NVLINK_DOWN, kinds.FABRIC_STATE, kinds.FABRIC_MANAGER)
"""Kinds of evidence that may be bad for a while after a boot: they prove nothing until that time is over."""
_BY_ADDRESS = (kinds.XID, kinds.AER_FATAL, kinds.AER_UNCORRECTED, kinds.AER_CORRECTED)
_OF_STARTS = (kinds.AER_UNCORRECTED, kinds.IOMMU_FAULT)
_OF_DISKS = (kinds.DISK_ERROR, kinds.READ_ONLY_FILESYSTEM)
_EXPIRES = {
    kinds.XID: "xid.expires",
    kinds.DRIVER_FATAL: "xid.expires",
    kinds.AMD_GPU: "xid.expires",
    kinds.ACCELERATOR: "xid.expires",
    kinds.ACCELERATOR_RESET: "xid.expires",
    kinds.NVLINK_DISCOVERY: "xid.expires",
    kinds.SXID: "sxid.expires",
    kinds.DISK_ERROR: "disk.expires",
    kinds.NETWORK_DISK_ERROR: "disk.expires",
    kinds.READ_ONLY_FILESYSTEM: "disk.expires",
    kinds.KERNEL_HANG: "kernel.expires",
    kinds.TASK_HANG: "kernel.expires",
    kinds.NIC_FAILED: "nic.expires",
    kinds.NIC_ERROR: "nic.expires",
    kinds.AER_FATAL: "hardware.expires",
    kinds.AER_UNCORRECTED: "hardware.expires",
    kinds.AER_CORRECTED: "hardware.expires",
    kinds.AER_ELSEWHERE: "hardware.expires",
    kinds.IOMMU_FAULT: "hardware.expires",
    kinds.HOST_UNCORRECTED: "hardware.expires",
    kinds.HOST_CORRECTED: "hardware.expires",
    kinds.HOST_THERMAL: "hardware.expires",
}
"""Kinds of evidence from log lines and events, each with the threshold after which it expires."""


class Agent:
    """The agent of one node. Call `run`; it returns after `stop`."""

    def __init__(
        self,
        settings: Settings,
        thresholds: Thresholds,
        problems: Iterable[str],
        nvml: NvmlProcess,
        make_writer: Callable[[Callable[[dict[str, Any]], None]], Writer],
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic, self._wall = monotonic, wall
        self._settings = settings
        self._thresholds = thresholds
        self._lasting_problems = tuple(problems)
        self._nvml = nvml
        self._gpus = Gpus(thresholds, settings.expected_gpus)
        self._log = KernelLog(settings.kernel_log)
        self._mounts = Mounts(settings.mounts_file)
        self._fabric_manager = FabricManager(settings.proc, thresholds)
        self._clock_source = ClockSource(settings.sysfs)
        self._bridges = Bridges(settings.sysfs)
        self._bridges.inspect()
        self._disks = Disks(settings.sysfs)
        self._disks.inspect()
        self._network = NodeNetwork(settings.sysfs, settings.proc)
        self._network.inspect()
        self._held = Held(thresholds["nvml.hang_backoff"])
        self._hung: set[str] = set()  # batches that have hung, and of whose kind none was answered since
        self._ledger = Ledger(read_text(settings.boot_id_file), thresholds["burst"], thresholds["clear.growth"])
        self._system_uuid = read_text(settings.system_uuid_file)
        self._writer = make_writer(self._stored_arrived)
        self._stored: dict[str, Any] | None = None
        self._adopted = False
        self._booted = False
        self._stood = False
        self._inspections = Inspections(_lasting(thresholds))
        self._nvml_seen: dict[str, float] = {}  # by batch: when each part of a complete poll was last answered
        self._told: dict[str, Any] | None = None
        self._infiniband, self._ports = self._make_ports_sampler()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ)
        self._watched: set[int] = set()
        self._due: dict[str, float] = {}
        self._initialised = False
        self._told_of_start: tuple[bool, str] | None = None
        self._looking_at_once = False
        self._counted_at = -math.inf
        self._log_read_at: float | None = None  # when the log was first read to its end
        self._reaching_since = 0.0
        self._nvml_errors: dict[str, str] = {}
        self._kinds: dict[str, int] = {}
        self._began = self._alive_at = self._monotonic()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Poll until `stop` is called."""
        self._writer.start()
        self._ports.start()
        log("the node agent runs", node=self._settings.node, version=__version__, boot=self._ledger.boot_id)
        try:
            while not self._stopping.is_set():
                self._poll()
        finally:
            self._ports.end()
            self._nvml.close()
            self._log.close()

    def stop(self) -> None:
        """End `run` soon. May be called from a signal handler."""
        self._stopping.set()
        self._wake()

    def is_alive(self) -> bool:
        """Whether the loop runs, and its threads live."""
        turns = self._monotonic() - self._alive_at < _ALIVE_SECONDS
        return turns and self._writer.is_alive() and self._ports.is_alive()

    def not_ready(self) -> str:
        """Return why the agent's report proves nothing now; "" while it sees all of the node and may report it. Any
        thread may call it."""
        missing = self._inspections.missing(self._monotonic())
        if missing:
            return f"not checked in the last {self._thresholds['ready.max_age']:.0f} s: {', '.join(missing)}"
        refused_seconds = self._writer.refused_seconds
        if refused_seconds > self._thresholds["ready.refused"]:
            return f"the API server has refused all requests for {refused_seconds:.0f} s: {self._writer.problem}"
        return (
            ""
            if self._told is not None
            else "nothing is reported yet, because the record of the earlier agent is not known"
        )

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:  # awake already
            return

    def _stored_arrived(self, stored: dict[str, Any]) -> None:
        """Take over the stored NodeHealth. The writer's thread calls this."""
        self._stored = stored
        self._wake()

    def _poll(self) -> None:
        now = Clock(self._monotonic(), self._wall())
        self._alive_at = now.mono
        self._adopt(now)
        self._poll_nvml(now)
        self._on_time("log", now, self._log_period(), self._read_log)
        self._on_time("machine", now, self._thresholds["machine.period"], self._inspect_machine)
        self._record_ports(now)
        self._ledger.expire(now)
        self._report()
        self._wait()

    def _on_time(self, name: str, now: Clock, period: float, act: Callable[[Clock], None]) -> None:
        if now.mono >= self._due.get(name, 0.0):
            self._due[name] = now.mono + period
            act(now)

    def _wait(self) -> None:
        self._watch()
        now = self._monotonic()
        if self._nvml.outstanding is not None:
            nvml = self._nvml.outstanding.deadline
        elif self._nvml.running:
            nvml = min(self._due.get(name, 0.0) for name in self._batches())
        else:
            nvml = now + _LONGEST_WAIT_SECONDS
        due = min(nvml, self._due["log"], self._due["machine"])
        for key, _ in self._selector.select(max(0.0, min(due - now, _LONGEST_WAIT_SECONDS))):
            if key.fd == self._wake_read:
                os.read(self._wake_read, 4096)
            elif key.fd == self._log.fileno():
                # Records are read in batches: a flood must not wake the loop for each of its lines.
                self._due["log"] = min(self._due["log"], self._monotonic() + _DRAIN_PAUSE_SECONDS)
                self._forget(key.fd)

    def _watch(self) -> None:
        """Register the descriptors to wait for now: they come and go with processes and files."""
        wanted = set()
        if self._nvml.running:
            wanted.add(self._nvml.fileno())
        log_descriptor = self._log.fileno()
        if log_descriptor is not None and self._due["log"] > self._monotonic() + _DRAIN_PAUSE_SECONDS:
            wanted.add(log_descriptor)
        for descriptor in self._watched - wanted:
            self._forget(descriptor)
        for descriptor in wanted - self._watched:
            try:
                self._selector.register(descriptor, selectors.EVENT_READ)
                self._watched.add(descriptor)
            except PermissionError:  # a file of a kind that cannot be waited for: the timer polls it
                continue

    def _forget(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._selector.unregister(descriptor)

    # What an earlier agent knew.

    def _adopt(self, now: Clock) -> None:
        if self._adopted or self._stored is None:
            return
        self._adopted = True
        earlier = Earlier.from_stored(self._stored, self._ledger.boot_id, self._system_uuid)
        self._booted = earlier.another_boot
        self._stood = earlier.stood
        since = earlier.resets_watched_since
        self._ledger.watch_resets(self._began if since is None else since)
        expires = {kind: self._thresholds[row] for kind, row in _EXPIRES.items()}
        self._ledger.adopt(earlier.of_this_boot, expires, now)
        self._ledger.remember(earlier.of_the_boot_before, now.mono + self._thresholds["boot.grace"])
        shared = (item.subject for item in earlier.of_this_boot if item.kind == kinds.NETWORK_DISK_ERROR)
        for device in self._disks.remember(shared):  # the log may have been read again before that was known
            for kind in _OF_DISKS:
                self._ledger.retract(kind, device)
        self._gpus.seen = max(self._gpus.seen, earlier.gpus)
        for uuid, links in earlier.links.items():
            self._gpus.had_links(uuid, links)
        self._infiniband.adopt(
            earlier.missed_ports, earlier.flapping_ports, earlier.ports, earlier.port_names, earlier.front_end
        )
        self._ports.poll_again()
        self._forget_inspections()  # only now it is known what there should be
        self._looking_at_once, self._due["start"] = True, now.mono
        self._ledger.news = True

    def _forget_inspections(self) -> None:
        self._inspections.forget()
        self._nvml_seen.clear()
        self._counted_at = -math.inf
        self._due.pop("slow", None)

    # NVML.

    def _batches(self) -> tuple[str, ...]:
        if not self._initialised:
            return ("start",)
        return ("fast", "normal", "slow", "reach") if self._gpus.unreachable else ("fast", "normal", "slow")

    def _poll_nvml(self, now: Clock) -> None:
        for message in self._nvml.read(now.mono):
            self._note_nvml(message, now)
        if self._nvml.has_ended():
            self._nvml_errors = {"": "the process that queries NVML has ended; the agent starts it again"}
            self._initialised = False
        late = self._nvml.hung(now.mono)
        if late is not None:
            self._nvml_hung(late, now)
        if self._nvml.start(now.mono):
            self._initialised = False
            self._due["start"] = now.mono
        if self._nvml.running and self._nvml.outstanding is None:
            self._ask(now)

    def _ask(self, now: Clock) -> None:
        old = now.mono - self._nvml.started_at > self._thresholds["nvml.renewal_period"]
        left_out = self._held.skipped_gpus(now.mono)
        if old or (self._initialised and left_out != self._gpus.left_out):
            self._nvml.renew()
            return
        if not self._initialised:
            self._nvml.left_out = self._gpus.left_out = left_out
        if self._looking_at_once and self._initialised:
            self._due["fast"] = now.mono
            # Counters confirm what the log says; a flood of lines does not have them read more often.
            soonest = max(now.mono, self._counted_at + _CONFIRM_SECONDS)
            self._due["normal"] = min(self._due.get("normal", 0.0), soonest)
            self._looking_at_once = False
        periods = {"start": "nvml.retry_period", "fast": "nvml.fast_period"}
        periods |= {"normal": "nvml.normal_period", "slow": "nvml.slow_period", "reach": "nvml.retry_period"}
        deadlines = {"start": "nvml.start_deadline", "slow": "nvml.slow_deadline", "reach": "nvml.start_deadline"}
        for batch in self._batches():
            if now.mono >= self._due.get(batch, 0.0):
                self._due[batch] = now.mono + self._thresholds[periods[batch]]
                if batch == "normal":
                    self._counted_at = now.mono
                self._nvml.ask(batch, now.mono, self._thresholds[deadlines.get(batch, "nvml.deadline")])
                self._reaching_since = now.mono
                return

    def _nvml_hung(self, late: Outstanding, now: Clock) -> None:
        self._initialised = False
        seconds = now.mono - late.asked_at
        at = late.gpu if late.gpu is not None and self._held.hung(late.gpu, late.batch, now.mono) else None
        subject = "" if at is None else self._gpus.name_at(at)
        log(
            "NVML hangs; its process is killed",
            batch=late.batch,
            seconds=round(seconds, 1),
            gpu=late.gpu,
            left_out=subject,
        )
        about = "" if at is None else f" about GPU {at}; the agent checks the others without it"
        was_hung, self._due[late.batch] = bool(self._hung), now.mono
        self._hung.add(late.batch)
        if not was_hung:  # a program's own work can delay the driver for seconds
            return
        text = f"NVML did not answer twice within {seconds:.0f} s (batch {late.batch}){about}"
        limit = f"{self._thresholds['nvml.deadline']:g} s"
        hang = Signal(kinds.NVML_HANG, subject, bad=True, value=f"more than {limit}", threshold=limit, message=text)
        self._ledger.sample([hang], now)

    def _note_nvml(self, message: dict[str, Any], now: Clock) -> None:
        event = message.get("event")
        if event is not None:
            for fault_event in self._gpus.events(event):
                self._ledger.record(fault_event, now)
            # After any event the driver may recommend a recovery action.
            self._looking_at_once = True
            return
        batch, answer = message["batch"], message["answer"]
        self._hung.discard(batch)
        clear = self._thresholds["nvml.clear"]
        self._ledger.sample([Signal(kinds.NVML_HANG, "", bad=False, clear_seconds=clear)], now)
        if batch == "start":
            self._initialised = "init_error" not in answer
            # A driver that is not loaded yet after a boot says nothing about the machine's GPUs.
            awaited = self._told is None and self._booted and self._gpus.expected > 0
            if self._gpus.has_no_driver(answer) and not awaited:
                self._inspections.seen(NVML, now.mono)
            self._due["reach"] = now.mono + self._thresholds["nvml.retry_period"]
            self._gpus.at_driver = gpus_of_the_driver(self._settings.proc)
            self._ledger.sample(self._gpus.started(answer), now)
            self._ledger.rename(self._gpus.names)
            if self._told_of_start != (start_state := (self._initialised, self._gpus.problem)):  # it is tried for ever
                self._told_of_start = start_state
                log("NVML started" if self._initialised else "NVML does not start", problem=self._gpus.problem)
        elif batch == "fast":
            self._ledger.sample(self._gpus.fast(answer), now)
            if answer.get("count") is not None and self._gpus.have_answered(answer):
                self._nvml_answered(batch, now)
        elif batch == "normal":
            self._ledger.sample(self._gpus.normal(answer, now.mono), now)
            if self._gpus.have_answered(answer):
                self._nvml_answered(batch, now)
        elif batch == "slow":
            self._ledger.sample(self._gpus.slow(answer), now)
            if self._gpus.have_answered(answer):
                self._nvml_answered(batch, now)
        elif batch == "reach":
            self._ledger.sample(self._gpus.reached(answer), now)
            self._ledger.rename(self._gpus.names)
            took = now.mono - self._reaching_since
            self._due["reach"] = max(self._due["reach"], now.mono + _REACH_PAUSE * took)
        self._held.answered((int(gpu["index"]) for gpu in answer.get("gpus", ())), batch)
        self._nvml_errors.pop("", None)
        called = ", ".join(f"{name} {code}" for name, code in sorted((answer.get("errors") or {}).items()))
        self._nvml_errors[batch] = f"NVML returns errors: {called}" if called else ""

    def _nvml_answered(self, batch: str, now: Clock) -> None:
        """Note that a batch was answered. A complete poll of the GPUs has their memory, links and fabric, too, and the
        InfoROM once."""
        self._nvml_seen[batch] = now.mono
        if self._nvml_seen.keys() >= {"fast", "normal", "slow"}:
            self._inspections.seen(NVML, min(self._nvml_seen["fast"], self._nvml_seen["normal"]))

    # Log and machine.

    def _log_period(self) -> float:
        return _FILE_PERIOD_SECONDS if self._log.fileno() is None else _LONGEST_WAIT_SECONDS

    def _make_ports_sampler(self) -> tuple[InfiniBand, Sampler]:
        fabric = InfiniBand(self._settings.sysfs, self._thresholds, self._settings.expected_ports, self._network)
        looks = (
            (self._thresholds["infiniband.state_period"], fabric.states),
            (self._thresholds["infiniband.counter_period"], lambda: fabric.counters(self._monotonic())),
        )
        return fabric, Sampler(looks, self._wake, self._monotonic)

    def _read_log(self, now: Clock) -> None:
        for entry in self._log.read():
            self._logged(entry, now)
        self._log_read_at = now.mono if self._log.caught_up else None
        if not self._log.problem:
            self._inspections.seen(LOG, now.mono)

    def _record_ports(self, now: Clock) -> None:
        looked_at = self._ports.looked_at if self._ports.has_looked else None  # before what it saw is taken
        self._ledger.sample(self._ports.pop_signals(), now)
        # A device that hangs at its first read counts as seen: the hang is evidence by itself.
        if looked_at is not None and all(
            self._ledger.has(kinds.SYSFS_HANG, device) for device in self._infiniband.unseen
        ):
            self._inspections.seen(PORTS, looked_at)
        seconds, limit = self._ports.under_way_seconds(now.mono), self._thresholds["sysfs.deadline"]
        text = "reading /sys/class/infiniband hangs: the state of the network ports is unknown"
        hangs = Signal(
            kinds.SYSFS_HANG,
            "",
            seconds > limit,
            value=f"more than {limit:g} s",
            threshold=f"{limit:g} s",
            message=text,
        )
        if hangs.bad or self._ports.has_looked:
            self._ledger.sample([hangs], now)

    def _logged(self, entry: LogEntry, now: Clock) -> None:
        fact = entry.fact
        if fact.kind == SCSI_HOST:
            self._disks.note_host(fact.device, fact.value)
            return
        if fact.kind == SCSI_DISK:
            self._disks.note_attached(fact.device, host=fact.value)
            return
        if fact.kind == FAILED_PATH:
            self._disks.note_failed_path(fact.device, path=fact.value)
            return
        if fact.kind in _OF_DISKS and self._disks.is_shared(fact.device):
            fact = replace(fact, kind=kinds.NETWORK_DISK_ERROR)
        elif fact.kind == kinds.NETWORK_DISK_ERROR:
            self._disks.note_full(fact.device)
        age = 0.0 if entry.boot_seconds is None else max(0.0, now.mono - entry.boot_seconds)
        replayed = self._log_read_at is None and entry.boot_seconds is not None
        if self._log_read_at is not None:  # the line was not there then, whatever the log's own clock says
            age = min(age, now.mono - self._log_read_at)
        if fact.kind in (kinds.GPU_LOST, kinds.GPU_INIT):
            # The fault may be long over, or repaired by a reset since: NVML knows.
            by_minor = fact.device.isdecimal()
            address = gpu_of_minor(self._settings.proc, fact.device) if by_minor else fact.device
            if address is not None:
                self._gpus.note_kernel_line(fact.kind, address, fact.message)
            self._looking_at_once = True
            return
        if fact.kind == kinds.AMD_GPU and (self._gpus.seen or gpus_of_the_driver(self._settings.proc)):
            return  # beside GPUs of NVIDIA it is that of the processor
        below = (
            self._bridges.below(fact.device) if fact.kind == kinds.AER_ELSEWHERE and fact.value in TAKEN_AWAY else ""
        )
        if below:
            fact = replace(fact, kind=kinds.AER_FATAL, message=f"{fact.message} (above {below})")
        if fact.kind == kinds.CLOCK_SOURCE:
            self._clock_source.why = fact.message
            return
        booting = entry.boot_seconds is not None and entry.boot_seconds < self._thresholds["aer.booting"]
        if fact.kind in _OF_STARTS and booting:
            return  # a search for devices asks for absent ones, and drivers take over what the firmware has begun
        subject = self._gpus.name_of(fact.device) if fact.kind in _BY_ADDRESS else fact.device
        taken_back = recovery_taken_back(fact)
        if taken_back is not None:
            self._ledger.clear_driver_requests(subject, now.mono - age)
            if taken_back:
                self._ledger.reset(subject, now.mono - age, now)
            return
        expires = self._thresholds[_EXPIRES[fact.kind]]
        fault_event = FaultEvent(
            fact.kind, subject, expires, fact.code, fact.value, fact.message, age, replayed=replayed
        )
        self._ledger.record(fault_event, now)
        if fact.kind == kinds.XID:
            self._looking_at_once = True

    def _inspect_machine(self, now: Clock) -> None:
        boot_id = read_text(self._settings.boot_id_file)
        if boot_id and boot_id != self._ledger.boot_id:
            log("the node has a new boot id: everything is read again", boot=boot_id)
            if self._told is not None:
                self._stored = {"status": {"agent": self._told, "evidence": self._ledger.evidence()}}
            self._adopted, self._told, self._began = False, None, now.mono
            self._forget_inspections()
            self._log_read_at = None
            self._ledger.restart(boot_id)
            self._gpus.restart()
            self._held.clear()
            self._hung.clear()
            self._ports.end()
            self._infiniband, self._ports = self._make_ports_sampler()
            self._ports.start()
            self._mounts.restart()
            self._bridges = Bridges(self._settings.sysfs)
            self._disks = Disks(self._settings.sysfs)
            self._nvml.renew()
        self._bridges.inspect()
        self._disks.inspect()
        self._network.inspect()
        self._ledger.sample(self._mounts.signals(), now)
        self._ledger.sample(self._fabric_manager.signals(), now)
        self._ledger.sample(self._clock_source.signals(), now)

    # Reporting.

    def _problem(self) -> str:
        nvml = self._gpus.problem or next(filter(None, self._nvml_errors.values()), "")
        if self._nvml.stuck:
            nvml = "a process that called NVML cannot be killed: it hangs inside the driver"
        missing = self._inspections.missing(self._monotonic()) if self._told is not None else []
        blind = f"not checked lately: {', '.join(missing)}" if missing else ""
        return clean("; ".join(filter(None, (nvml, self._log.problem, blind, *self._lasting_problems))), 512)

    def _agent_status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "bootId": self._ledger.boot_id,
            "systemUuid": self._system_uuid,
            "gpuSerials": self._gpus.serials,
            "gpuModel": self._gpus.model,
            "gpus": self._gpus.answering,
            "gpusExpected": self._gpus.seen,
            "ports": self._infiniband.up,
            "portsExpected": self._infiniband.seen,
            "portsUp": list(self._infiniband.up_names),
            "portsExpectedUp": list(self._infiniband.had_names),
            "driver": self._gpus.driver,
            "problem": self._problem(),
            "resetsWatchedSince": math.ceil(max(0.0, self._ledger.watched_since or 0.0)),
        }

    def _report(self) -> None:
        if not self._adopted or not self._knows_enough():
            return
        agent = self._agent_status()
        # A GPU that answers now and then, or an error that comes and goes, must not make a write a second.
        news = self._ledger.news or self._told is None or agent["bootId"] != self._told["bootId"]
        if not news and not self._ledger.counted and agent == self._told:
            return
        evidence = self._ledger.evidence()
        self._writer.offer({"evidence": evidence, "agent": agent}, urgent=news)
        self._kinds = dict(Counter(item["kind"] for item in evidence))
        self._told = agent
        self._ledger.news = self._ledger.counted = False

    def _knows_enough(self) -> bool:
        """Whether it is time for the first report: it replaces what an earlier agent has written.

        After a boot the first report decides about all earlier evidence against the node, so everything has to be seen
        first. A driver that is slow to start proves nothing, nor do ports that are still coming up. A driver that hangs
        or fails is an answer, and is evidence by itself. Where no evidence stood against the node, the agent waits only
        for a while, or until it has evidence.
        """
        if self._told is not None:
            return True
        waited = self._monotonic() - self._began
        come_up = self._stood and waited < 2 * self._thresholds["boot.grace"]
        if self._inspections.has(NVML, PORTS) and not (come_up and any(map(self._ledger.awaits, _COME_UP))):
            return True
        if self._ledger.has(kinds.NVML_HANG, "") or (self._booted and self._ledger.has(kinds.NVML_FAILED)):
            return True
        if self._stood:
            return False
        if self._booted:
            return waited > self._thresholds["boot.grace"]
        has_facts = bool(len(self._ledger) or self._gpus.answering or self._gpus.problem)
        return has_facts or waited > self._thresholds["nvml.deadline"]

    def metrics(self) -> list[Metric]:
        """Return the metrics. The server's thread calls this, so it reads single values only."""
        evidence = [({"kind": kind}, float(count)) for kind, count in self._kinds.items()]
        figures = list(self._gpus.figures.items())

        def per_gpu(name: str, scale: float = 1.0) -> list[tuple[dict[str, str], float]]:
            return [({"gpu": gpu}, values[name] * scale) for gpu, values in figures if name in values]

        return [
            ("muster_agent_evidence", "gauge", "Evidence against the node, by kind.", evidence),
            ("muster_agent_gpus", "gauge", "GPUs that answer.", [({}, self._gpus.answering)]),
            ("muster_agent_gpus_expected", "gauge", "GPUs that should answer.", [({}, self._gpus.expected)]),
            ("muster_agent_nvml_hangs_total", "counter", "Times that NVML did not answer.", [({}, self._nvml.hangs)]),
            ("muster_agent_nvml_starts_total", "counter", "Starts of the NVML process.", [({}, self._nvml.starts)]),
            ("muster_agent_log_lines_total", "counter", "Lines of the kernel log read.", [({}, self._log.lines)]),
            (
                "muster_agent_log_skipped_bytes_total",
                "counter",
                "What a flood of the kernel log made skip.",
                [({}, self._log.skipped_bytes)],
            ),
            ("muster_agent_writes_total", "counter", "Writes of NodeHealth.", [({}, self._writer.writes)]),
            (
                "muster_agent_write_errors_total",
                "counter",
                "Requests that failed, by whether the API server refused them or gave no answer that helps.",
                [
                    ({"reason": "Refused"}, float(self._writer.refused)),
                    ({"reason": "Unavailable"}, float(self._writer.errors - self._writer.refused)),
                ],
            ),
            ("muster_gpu_power_watts", "gauge", "Power drawn.", per_gpu("power_mw", 1e-3)),
            ("muster_gpu_energy_joules_total", "counter", "Energy used.", per_gpu("energy_mj", 1e-3)),
            ("muster_gpu_temperature_margin_celsius", "gauge", "Degrees to the limit.", per_gpu("margin")),
            ("muster_gpu_clock_reasons", "gauge", "NVML's clock event reasons.", per_gpu("clock_reasons")),
            ("muster_gpu_pcie_replays_total", "counter", "PCIe replays.", per_gpu("pcie_replays")),
            ("muster_gpu_ecc_corrected_total", "counter", "Corrected errors.", per_gpu("ecc_corrected")),
            ("muster_gpu_ecc_uncorrected_total", "counter", "Uncorrected errors.", per_gpu("ecc_uncorrected")),
        ]


def _lasting(thresholds: Thresholds) -> dict[str, float]:
    """Return for how many seconds a poll of each part counts: where polls are rarer, until the next but one."""
    periods = {
        NVML: max(thresholds[f"nvml.{row}_period"] for row in ("fast", "normal", "retry")),
        PORTS: thresholds["infiniband.state_period"],
        LOG: _LONGEST_WAIT_SECONDS,
    }
    return {part: max(thresholds["ready.max_age"], 2 * period) for part, period in periods.items()}
