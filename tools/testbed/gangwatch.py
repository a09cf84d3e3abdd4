"""Sees each commit of a Gang as a watch shows it, with the time on the monotonic clock."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from localcluster.patience import PATIENCE_SECONDS
from testbed.kube import Kubectl, wait_until


@dataclass(frozen=True)
class Seen:
    """One state of a Gang."""

    monotonic_seconds: float
    attempt: int
    level: str
    reason: str
    going: bool
    resumed_step: int | None
    nodes: tuple[str, ...]
    spec: dict[str, Any]


class GangWatch:
    """Watches all Gangs of one job from construction to `close` (it is a context manager, too)."""

    def __init__(self, kubectl: Kubectl, namespace: str, job: str) -> None:
        self.seen: list[Seen] = []
        self._job = job
        self._stream = kubectl.stream("get", "gangs", "-n", namespace, "--watch", "-o", "json", "--output-watch-events")
        self._process = self._stream.__enter__()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stream.__exit__(None, None, None)
        self._thread.join()

    @property
    def latest(self) -> Seen | None:
        return self.seen[-1] if self.seen else None

    def wait_attempt(self, after: int, timeout_seconds: float = PATIENCE_SECONDS) -> Seen:
        """The first state seen of an attempt beyond `after`."""
        return wait_until(
            f"an attempt after {after} of {self._job}",
            lambda: next((seen for seen in self.seen if seen.attempt > after), None),
            timeout_seconds,
            0.02,
        )

    def wait_going(self, after: int, timeout_seconds: float = PATIENCE_SECONDS) -> Seen:
        """The first state seen of an attempt beyond `after` whose ranks have their go."""
        return wait_until(
            f"the start of an attempt after {after} of {self._job}",
            lambda: next((seen for seen in self.seen if seen.attempt > after and seen.going), None),
            timeout_seconds,
            0.02,
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(json.loads(line)["object"])

    def _take(self, gang: dict[str, Any]) -> None:
        owners = [owner["name"] for owner in gang["metadata"].get("ownerReferences", ())]
        if self._job not in owners:
            return
        spec = gang["spec"]
        go = spec.get("start")
        self.seen.append(
            Seen(
                monotonic_seconds=time.monotonic(),
                attempt=spec["attempt"],
                level=spec["level"],
                reason=spec["reason"],
                going=go is not None,
                resumed_step=(go.get("resume") or {}).get("step") if go else None,
                nodes=tuple(member.get("node", "") for member in spec.get("members") or ()),
                spec=spec,
            )
        )
