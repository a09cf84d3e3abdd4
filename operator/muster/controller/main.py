"""The entry point: kopf owns the process (signals, its event loop, start and stop), the rest is ours.

kopf watches nothing: it ends the process when it meets an object that it cannot read, each event would cost it five
deep copies, and its peering is no leader election (docs/decisions/0001).

Tests: tests/unit/controller/test_main.py, tests/unit/controller/test_logging.py,
tests/integration/install/test_first_start.py.
"""

import gc
import logging
import os
import sys
from typing import Any

import kopf
import structlog

from muster.controller.metrics import note_memory_limit
from muster.controller.operator import Operator
from muster.controller.settings import COLLECT_AFTER, SWITCH_SECONDS, Settings
from muster.kube.client import Client
from muster.kube.errors import NoCredentials
from muster.kube.version import UnsupportedServerError
from muster.serve import open_as_many_files_as_allowed

# kopf ends the process when these are used up: an API server that is away is no reason to.
BACK_OFFS = (1, 2, 3, 5, 8, 13, 21, *(30,) * 10_000)


def main() -> None:
    """Run the operator until a signal ends it."""
    gc.set_threshold(*COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_SECONDS)
    open_as_many_files_as_allowed()
    note_memory_limit()
    settings = Settings.from_environment()
    configure_logging(settings.log_level)
    registry = kopf.OperatorRegistry()
    running: list[Operator] = []
    refused: list[str] = []

    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.networking.error_backoffs = BACK_OFFS
        running.append(await _started())

    async def _started() -> Operator:
        try:
            operator = Operator(await Client.connect(), settings)
            await operator.start()
        except (NoCredentials, UnsupportedServerError) as error:
            refused.append(str(error))
            raise kopf.PermanentError(str(error)) from error
        return operator

    async def stop(**_: Any) -> None:
        for operator in running:
            await operator.stop()

    kopf.on.startup(registry=registry)(start)
    kopf.on.cleanup(registry=registry)(stop)
    kopf.on.login(registry=registry)(_login)
    # kopf asks the system for a user name, and a container's numeric user may have none.
    os.environ.setdefault("LOGNAME", "muster")
    try:
        kopf.run(registry=registry, standalone=True, clusterwide=True)
    except Exception:
        if refused:
            raise SystemExit(refused[0]) from None
        raise


def _login(**kwargs: Any) -> Any:
    return kopf.login_with_service_account(**kwargs) or kopf.login_with_kubeconfig(**kwargs)


def configure_logging(level: str) -> None:
    """JSON lines on standard output, one per decision; libraries' records take the same form."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _in_reading_order,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=shared,
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("muster").setLevel(level)


def _in_reading_order(_logger: Any, _method: str, event: Any) -> Any:
    """When, how bad, what; then the rest."""
    first = {key: event.pop(key) for key in ("timestamp", "level", "event") if key in event}
    return {**first, **event}
