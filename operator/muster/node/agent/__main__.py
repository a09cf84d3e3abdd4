"""`python -m muster.node.agent`: the node agent. Its settings come from the environment (settings.py).

Tests: tests/integration/nightly/agent/test_agent.py.
"""

import os
import signal
import sys

from muster.node.agent.agent import Agent
from muster.node.agent.client import NodeHealthClient
from muster.node.agent.nvml_process import NvmlProcess
from muster.node.agent.settings import SettingsError, from_environment
from muster.node.agent.thresholds import load
from muster.node.agent.writer import Writer
from muster.node.log import log
from muster.serve import Server, exposition, open_metrics, probe

_CONFIGURATION_ERROR = 78  # EX_CONFIG


def main() -> int:
    """Run until SIGTERM."""
    try:
        settings = from_environment(os.environ)
    except SettingsError as error:
        log("the agent cannot start", problem=str(error))
        return _CONFIGURATION_ERROR
    thresholds, problems = load(settings.thresholds_file)
    client = NodeHealthClient(settings)
    agent = Agent(
        settings, thresholds, problems, NvmlProcess(), lambda on_stored: Writer(client, thresholds, on_stored)
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    try:
        port = Server(
            settings.listen,
            {
                "/healthz": probe(lambda: "" if agent.is_alive() else "the agent has stopped looking"),
                "/readyz": probe(agent.not_ready),
                "/metrics": open_metrics(lambda: exposition(agent.metrics())),
            },
            node=settings.node_addresses,
        ).port
    except OSError as error:
        # An agent that is being replaced may still hold the port. Monitoring matters more than the probes' answers.
        log("no port for /healthz, /readyz and /metrics", address=settings.listen, problem=str(error))
    else:
        log("serving /healthz, /readyz and /metrics", port=port)
    agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
