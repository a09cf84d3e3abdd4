"""Puts the launcher together and runs it.

Tests: tests/unit/launcher/test_running.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from typing import List, NoReturn

from muster import __version__
from muster.node.launcher.children import ROOT
from muster.node.launcher.datagrams import Datagrams
from muster.node.launcher.environment import Settings, SettingsError, settings_from
from muster.node.launcher.fence_file import FenceFile, Storage, path_of
from muster.node.launcher.host import Host, Wakeup
from muster.node.launcher.log import Log
from muster.node.launcher.matcher import Matcher
from muster.node.launcher.peers import Peers
from muster.node.launcher.reclaim import become_subreaper
from muster.node.launcher.reporter import Reporter
from muster.node.launcher.scanner import Scanner
from muster.node.launcher.supervisor import Supervisor
from muster.protocol.messages import Report

_CONFIGURATION_ERROR = 78  # EX_CONFIG
_FLUSH_SECONDS = 0.1


def run(command: List[str]) -> NoReturn:
    """Supervise `command` until the launcher is told to exit, then end this process."""
    # With vfork a program that hangs in exec, on stalled storage, would stop every thread of this process.
    vars(subprocess)["_USE_VFORK"] = False
    log = Log()
    code = _CONFIGURATION_ERROR
    try:
        settings = settings_from(os.environ, _writable_directory())
        code = _supervise(settings, command, log)
    except SettingsError as error:
        log(str(error))
    log.flush(_FLUSH_SECONDS)
    os._exit(code)  # threads that wait for the network or for a reader must not hold this up


def _supervise(settings: Settings, command: List[str], log: Log) -> int:
    wakeup = Wakeup()
    peers = Peers(Datagrams(settings.pod_ip), settings.gang)
    host = Host(command, settings.resume_argument, os.environ, settings.directory, become_subreaper(), wakeup)
    identity = Report(
        sequence=0,
        state="",
        peer_port=peers.port,
        address=settings.pod_ip,
        launcher_version=__version__,
    )
    reporter = Reporter(settings, identity, wakeup, log)
    fence_file_path = path_of(settings.checkpoint_directory, settings.gang)
    storage = Storage(fence_file_path, wakeup) if fence_file_path else None
    scanner = Scanner(settings.checkpoint_directory, settings.scan_seconds, settings.scan_deadline_seconds)
    matcher = Matcher(settings.step_pattern, log, settings.progress_preset)
    supervisor = Supervisor(
        settings=settings,
        host=host,
        reporter=reporter,
        peers=peers,
        fence_file=FenceFile(storage),
        scanner=scanner,
        matcher=matcher,
        log=log,
    )
    wakeup.take_signals(
        {
            signal.SIGTERM: supervisor.leave,
            signal.SIGINT: supervisor.leave,
            signal.SIGCHLD: lambda: None,
        }
    )
    log("worker %d reports to %s:%d" % (settings.worker_index, settings.host, settings.port))
    reporter.start()
    return supervisor.run()


def _writable_directory() -> str:
    """The directory of the archive, where the operator mounts a volume. The root file system may be read-only."""
    beside = os.path.dirname(ROOT)
    if os.path.isfile(ROOT) and os.access(beside, os.W_OK):
        return beside
    import tempfile  # late: a launcher that has the operator's volume needs it never

    try:
        return tempfile.mkdtemp(prefix="muster-")
    except OSError as error:
        raise SettingsError("no writable directory for the launcher's files: %s" % error) from error
