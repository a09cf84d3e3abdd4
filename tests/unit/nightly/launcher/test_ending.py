"""Shared memory that ranks leave behind, with a launcher in a mount namespace of its own; and ranks that stay."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.launcher.real_launchers import a_rank_is_gone_before_idle_is_reported

from muster.protocol.messages import EXITED, IDLE

LEFT = {"nccl-rank", "sem.rank", "torch_99999999_rank", "other"}
# Its /dev/shm is no other process's: the launcher deletes there.
IN_ITS_OWN_NAMESPACE = """#!/bin/sh
exec unshare --map-root-user --mount sh -c 'mount -t tmpfs tmpfs /dev/shm && exec "$@"' sh {python} "$@"
"""


@pytest.mark.parametrize("own", [True, False])
def test_shared_memory_that_the_ranks_made_is_removed_where_nobody_else_sees_it(
    coordinator, launch, tmp_path, monkeypatch, own
):
    wrapper = tmp_path / "python"
    wrapper.write_text(IN_ITS_OWN_NAMESPACE.format(python=sys.executable))
    wrapper.chmod(0o755)
    monkeypatch.setenv("MUSTER_TEST_PYTHON", str(wrapper))
    script = f"for name in {LEFT}: open('/dev/shm/' + name, 'w').write('x')"
    launcher = launch(sys.executable, "-c", script, **({"MUSTER_OWN_SHARED_MEMORY": "1"} if own else {}))
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.state == IDLE)
    shared = Path(f"/proc/{launcher.process.pid}/root/dev/shm")
    assert shared.stat().st_dev != Path("/dev/shm").stat().st_dev
    (shared / "nccl-before").touch()
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == EXITED)
    assert {path.name for path in shared.iterdir()} == {"nccl-before", *LEFT}
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert {path.name for path in shared.iterdir()} == {"nccl-before", *({"other"} if own else LEFT)}


@pytest.mark.parametrize("trouble", ["ignores SIGTERM", "is stopped"])
def test_a_rank_is_gone_before_idle_is_reported_although_it(coordinator, run_python, tmp_path, alive, until, trouble):
    a_rank_is_gone_before_idle_is_reported(coordinator, run_python, tmp_path, alive, until, trouble)
