"""What one operator process takes from the machine that it runs on, so that a simulator can give its own.

Tests: tests/unit/simulate/test_stories.py.
"""

import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from muster.controller.patterns import StepPatterns
from muster.controller.ports import Ports
from muster.controller.settings import Settings
from muster.coordinator.memory import working_seconds
from muster.coordinator.server import CoordinatorServer
from muster.kube.client import Client
from muster.kube.lease import LeaderLease
from muster.kube.version import check_server_version


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """Everything that one operator process is given besides its client and its settings; the defaults are shipped.

    Attributes:
        clock: monotonic seconds.
        wall_clock: aware times.
        cpu_clock: seconds that the calling thread has computed so far, without garbage collection.
        end: ends the process there and then.
        server_version: reads the API server's version, and refuses one that is too old.
        make_ports: makes the ports that the process listens on.
        make_step_patterns: makes the tester of users' step patterns, which starts processes.
        least_launchers: returns how many launchers are to be expected at least, whatever reports here.
        keeps_history: whether accounts of ended jobs and the fleet's hours are kept.
        checks_installation: whether it is checked that the admission policies are in force, and that the definitions
            have the fields of this version.
    """

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    cpu_clock: Callable[[], float] = working_seconds
    end: Callable[[int], None] = os._exit
    server_version: Callable[[Client], Awaitable[str]] = check_server_version
    make_ports: Callable[[Client, Settings, CoordinatorServer, LeaderLease], Ports] = Ports
    make_step_patterns: Callable[[], StepPatterns] = StepPatterns
    least_launchers: Callable[[], int] = lambda: 0
    keeps_history: bool = True
    checks_installation: bool = True


SHIPPED = Dependencies()
