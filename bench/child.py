"""A client in a process of its own: orders and answers, one JSON a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.bed import ROOT
from localcluster.errors import LocalClusterError


class Child:
    """`python -m module arguments`; it dies with this process, also when this one is killed."""

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._module, self._log_path = module, log
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join((str(ROOT / "operator"), str(ROOT / "tools"))),
                **environment,
            },
        )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, order: Any) -> Any:
        """Give an order and wait for the answer.

        Raises:
            LocalClusterError: it ended instead; says what its log says.
        """
        assert self._process.stdout is not None
        try:
            self.tell(order)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            said = self._log_path.read_text(errors="replace")[-2000:]
            raise LocalClusterError(f"{self._module} ended; its log says:\n{said}")
        return json.loads(line)

    def tell(self, order: Any) -> None:
        """Give an order that is not answered."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def says(self) -> Iterator[Any]:
        """What it says of its own accord, until it ends."""
        assert self._process.stdout is not None
        return map(json.loads, self._process.stdout)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        self._log.close()
