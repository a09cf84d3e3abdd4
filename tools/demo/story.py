"""Tells the demo to the person who watches it: a short timeline, and one line of live progress."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from demo.account import Account
from demo.faults import Measured
from testbed.bed import Bed
from testbed.gangwatch import Seen

WHAT_HAPPENED = {
    "RankKilled": "SIGKILL hits",
    "PodDeleted": "kubectl deletes",
    "NodePowerCut": "the power goes out on",
}
PROGRESS_SECONDS = 1.0
PLAIN_PROGRESS_SECONDS = 15.0


class Story:
    """Prints; each line begins with the seconds since the start."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._shown_at = 0.0
        self._live = sys.stdout.isatty()
        self._line_open = False

    def tell(self, text: str) -> None:
        """One line of the timeline."""
        self._close_line()
        print(f"  {time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def detail(self, text: str) -> None:
        """A line of somebody else's progress."""
        self._close_line()
        print(f"            {text}", flush=True)

    def progress(self, bed: Bed, namespace: str, name: str, step: int, checkpoint: int) -> None:
        """The job as `kubectl get tj` shows it, the trainer's own step and checkpoint; rewritten in place on a
        terminal."""
        pause = PROGRESS_SECONDS if self._live else PLAIN_PROGRESS_SECONDS
        if time.monotonic() - self._shown_at < pause:
            return
        self._shown_at = time.monotonic()
        job = bed.kubectl.find("get", "trainingjob", "-n", namespace, name)
        status = (job or {}).get("status") or {}
        if not status.get("state"):
            return
        reason = "" if status["reason"] in (status["state"], "Training") else f" ({status['reason']})"
        text = (
            f"{name}: {status['state']}{reason}, attempt {status['attempt']}, "
            f"{status['nodesReady']} nodes, step {step}, checkpoint {checkpoint or '-'}"
        )
        if not self._live:
            self.detail(text)
            return
        print(f"\r\033[K            {text}", end="", flush=True)
        self._line_open = True

    def harm(self, kind: str, step: int) -> None:
        """A fault is about to happen."""
        self.tell(f"step {step}: now {kind}" if step else f"before the first step: {kind}")

    def healed(self, fault: Measured, seen: Sequence[Seen]) -> None:
        """It is over: what was seen, what it cost."""
        reasons = ", ".join(dict.fromkeys(f"{state.level} ({state.reason})" for state in seen))
        self.tell(f"  {WHAT_HAPPENED[fault.kind]} {fault.victim}: Muster answers with {reasons}")
        self.tell(
            f"  seen after {fault.detected_seconds:.1f} s, ranks started after {fault.ranks_started_seconds:.1f} s, "
            f"training again after {fault.first_new_step_seconds:.1f} s; back from step "
            f"{fault.last_step_before_fault} to checkpoint {fault.resumed_from_step}: {fault.lost_steps} steps to do "
            "again"
        )

    def report(self, job: str, told: Account) -> None:
        """What Muster says of the job, and whether that is what the demo's own clock says."""
        self.tell(f"kubectl muster report {job}")
        print()
        for line in told.page.rstrip().splitlines():
            print(f"      {line}".rstrip())
        print()
        self.tell("the same by the demo's own clock, and by the trainers' own logs:")
        for fault in told.faults:
            seconds = "an unknown time" if fault.reported_seconds is None else f"{fault.reported_seconds:.1f} s"
            self.detail(
                f"{fault.kind}: training again after {fault.measured_seconds:.1f} s, Muster says {seconds}; "
                f"{fault.measured_steps} steps made again, Muster says "
                f"{'unknown' if fault.reported_steps is None else fault.reported_steps}"
            )

    def verdict(self, report: dict[str, Any], path: Path) -> None:
        """The last words."""
        self._close_line()
        equal = report["final_weights_sha256"] == report["reference_weights_sha256"]
        print()
        if report["burn_in"]:
            bad = report["burn_in"]
            print(
                f"  1 node that computed wrongly, found by {bad['probe'] or 'nobody'} after "
                f"{bad['found_seconds']:.1f} s"
            )
        print(
            f"  {len(report['faults'])} faults, {report['attempts']} attempts, "
            f"{'succeeded' if report['succeeded'] else 'FAILED'}"
        )
        print(f"  weights after the faults:  {report['final_weights_sha256']}")
        print(f"  weights without any fault: {report['reference_weights_sha256']}  {'equal' if equal else 'DIFFERENT'}")
        print(f"  {path}, {time.monotonic() - self._begun:.0f} s in all", flush=True)

    def _close_line(self) -> None:
        if self._line_open:
            print("\r\033[K", end="")
            self._line_open = False
