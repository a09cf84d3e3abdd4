"""Query a Prometheus for the energy of a job's accelerators, by Muster's recording rules
(manifests/components/monitoring)."""

import json
import math
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from muster.cli.errors import CliError
from muster.goodput.energy import MeteredEnergy

WATTS = "namespace_job_name:muster_job_power_watts:sum"
GPUS = "namespace_job_name:muster_job_metered_gpus:count"
RULE_SECONDS = 30
"""Time that each sample of these rules stands for: the interval of their group."""
DEADLINE_SECONDS = 60.0
MOST_BYTES, READ_BYTES = 1_000_000, 65_536


def url_of(text: str) -> str:
    """Parse the address of a Prometheus.

    Raises:
        ValueError: it is none; says what to write.
    """
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # its message may quote a password
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise ValueError("write the address of a Prometheus, such as http://127.0.0.1:9090")
    if "@" in parts.path:
        raise ValueError("write each /, ? and # of a user's password as %2F, %3F and %23")
    return text.rstrip("/")


async def metered_energy(url: str, namespace: str, name: str, begin: datetime, end: datetime) -> MeteredEnergy:
    """Query what the accelerators of the job's nodes used between two moments of Prometheus's clock.

    Raises:
        CliError: Prometheus does not answer, or with something else.
    """
    selector = f'{{namespace="{namespace}",job_name="{name}"}}'
    seconds = max(math.ceil((end - begin).total_seconds()), 1)
    watts, gpus = [
        await _sum_of(url, f"sum(sum_over_time({rule}{selector}[{seconds}s]))", end) for rule in (WATTS, GPUS)
    ]
    return MeteredEnergy(watts * RULE_SECONDS, gpus * RULE_SECONDS)


async def _sum_of(url: str, query: str, at: datetime) -> float:
    """Return the only number of an answer; 0 where it has none.

    Raises:
        CliError: as of `metered_energy`.
    """
    import aiohttp  # takes long to import

    asked = {"query": query, "time": f"{at.timestamp():.3f}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=DEADLINE_SECONDS), trust_env=True) as session,
            session.get(f"{url}/api/v1/query", params=asked) as answer,
        ):
            status, body = answer.status, b""
            async for part in answer.content.iter_chunked(READ_BYTES):
                body += part
                if len(body) > MOST_BYTES:
                    break
    except (OSError, aiohttp.ClientError, ValueError) as error:
        raise CliError(f"no answer from the Prometheus at {_host(url)}: {_reason(error)}") from None
    number = _number(body)
    if number is None:
        body_text = " ".join(body[:200].decode(errors="replace").split())
        raise CliError(f"{_host(url)} does not answer as a Prometheus does (status {status}): {body_text}")
    return number


def _host(url: str) -> str:
    """Return the address without a user's password."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _reason(error: Exception) -> str:
    """Return why a request got no answer. Messages of any but system errors may quote an address with its password."""
    if isinstance(error, OSError) and str(error):
        return str(error)
    if isinstance(error, ValueError):
        return (
            "the address, its user or its password cannot be sent, or the address that it redirects to "
            f"({type(error).__name__})"
        )
    return type(error).__name__


def _number(body: bytes) -> float | None:
    """Return the number of an answer that is a vector of one sample or none; None: it is no such answer."""
    try:
        answer: Any = json.loads(body)
        samples = answer["data"]["result"]
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector" or len(samples) > 1:
            return None
        number = float(samples[0]["value"][1]) if samples else 0.0
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return None
    return number if math.isfinite(number) else None
