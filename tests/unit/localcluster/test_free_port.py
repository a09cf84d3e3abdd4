"""Ports are chosen now and listened on later: nobody is given one that somebody else is about to use."""

import os
import random
import subprocess
import sys

import pytest

from localcluster import controlplane
from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS


def test_a_port_is_given_once_though_nobody_listens_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port()
    drawn = iter([first, first, *random.sample(range(*controlplane._PORTS), 100)])
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    assert free_port() != first


def test_another_process_is_not_given_it_and_may_have_it_when_ours_has_ended() -> None:
    script = (
        "import random, sys\nfrom localcluster.controlplane import free_port\ndrawn = iter([int(sys.argv[1]), "
        "*range(int(sys.argv[1]) + 1, 40000)])\nrandom.randrange = lambda *_: next(drawn)\nprint(free_port())\n"
    )

    def other_process(port: int) -> int:
        command = [sys.executable, "-c", script, str(port)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
        )
        return int(done.stdout)

    ours = free_port()
    theirs = [other_process(ours) for _ in range(2)]
    assert ours not in theirs
    # Somebody else on this machine may have taken one of them meanwhile.
    assert any(other_process(port) == port for port in theirs)
