"""kubectl as a function, for whichever cluster is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from localcluster.patience import PATIENCE_SECONDS

T = TypeVar("T")


class KubectlError(Exception):
    """kubectl failed; the message is its own."""


class WaitError(Exception):
    """A condition did not come true in time; says which and what was seen last."""


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: Path, program: str) -> None:
        self.kubeconfig = kubeconfig
        self.program = program

    def __call__(
        self, *arguments: str, stdin: str | None = None, check: bool = True, timeout_seconds: float = PATIENCE_SECONDS
    ) -> str:
        """Run it and return what it prints.

        Raises:
            KubectlError: it failed, and check is set.
        """
        done = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if check and done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def json(self, *arguments: str) -> Any:
        """The object or list that `get ... -o json` prints."""
        return json.loads(self(*arguments, "-o", "json"))

    def find(self, *arguments: str) -> Any | None:
        """Like `json`, but None when there is no such object."""
        text = self(*arguments, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    @contextmanager
    def stream(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A kubectl that goes on printing (a watch, a log); ended when left."""
        process = subprocess.Popen(
            [self.program, *arguments],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig)}


def find_kubectl() -> str:
    """The kubectl on the PATH.

    Raises:
        SystemExit: there is none.
    """
    program = shutil.which("kubectl")
    if program is None:
        raise SystemExit("CLUSTER=existing needs kubectl on the PATH.")
    return program


def wait_until(
    what: str, look: Callable[[], T | None], timeout_seconds: float = PATIENCE_SECONDS, pause_seconds: float = 0.1
) -> T:
    """Look until something truthy is seen, and return it.

    Raises:
        WaitError: not seen in time.
    """
    until = time.monotonic() + timeout_seconds
    while True:
        seen = look()
        if seen:
            return seen
        if time.monotonic() > until:
            raise WaitError(f"waited {timeout_seconds:.0f} s for {what}; last seen: {seen!r}")
        time.sleep(pause_seconds)
