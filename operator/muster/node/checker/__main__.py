"""`python3 -m muster.node.checker`: runs the checker of this node. Its settings come from the environment
(settings.py).

Tests: tests/unit/checker/test_process.py.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from muster.node.checker.checker import Checker
from muster.node.checker.probes.prober import COMMAND
from muster.node.checker.settings import SettingsError, from_environment
from muster.node.log import log
from muster.serve import Server, exposition, open_metrics, probe

_CONFIGURATION_ERROR = 78  # EX_CONFIG


def main() -> int:
    """Run until SIGTERM; return the exit status."""
    parser = argparse.ArgumentParser(prog="muster.node.checker", description="Run the burn-in's orders on this node.")
    parser.add_argument("--zygote", nargs=argparse.REMAINDER, default=COMMAND, help="another command for the zygote")
    options = parser.parse_args()
    try:
        settings = from_environment(os.environ)
    except SettingsError as error:
        log("the checker cannot start", problem=str(error))
        return _CONFIGURATION_ERROR
    checker = Checker(settings, options.zygote, log)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: checker.stop())
    try:
        port = Server(
            settings.listen,
            {
                "/healthz": probe(lambda: "" if checker.is_alive() else "the checker has stopped"),
                "/metrics": open_metrics(lambda: exposition(checker.metrics())),
            },
            node=frozenset({settings.listen[0]}),  # of the host's loopback, where the kubelet asks
        ).port
    except OSError as error:
        log("no port for /healthz and /metrics", address=settings.listen, problem=str(error))
    else:
        log("serving /healthz and /metrics", port=port)
    checker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
