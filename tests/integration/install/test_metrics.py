"""The operator's metrics on a real API server with real tokens, read as the shipped ServiceMonitor reads them."""

import re
import time
from collections.abc import Callable
from typing import Any

from tests.integration.install.scraping import READER, read


def test_a_token_with_the_right_and_no_other_reads_metrics(
    installation: Any, scraper: Callable[..., str], wait_until: Callable[..., Any]
) -> None:
    replica = installation.start_leader()
    port = replica.metrics_port
    prometheus, tenant = scraper("prometheus", may_read=True), scraper("tenant", may_read=False)
    assert read(installation, port, "")[0] == 401
    assert read(installation, port, "forged")[0] == 401
    status, text = read(installation, port, tenant)
    assert (status, READER in text) == (403, True)
    # A right is in effect a moment after its binding, and a refusal is kept for a while: the first answer may be one.
    status, text = wait_until(lambda: _allowed(read(installation, port, prometheus)), "the right counts")
    assert "\nmuster_is_leader 1.0\n" in text
    (expiry,) = re.findall(r"^muster_certificate_expiry_timestamp_seconds (\S+)$", text, re.MULTILINE)
    assert 13 < (float(expiry) - time.time()) / 86400 <= 14
    assert replica.get("/metrics")[0] == 404, "nothing is told without a token"
    codes = {(each["resource"], each["code"]) for each in map(dict, replica.samples("muster_api_requests_total"))}
    assert ("subjectaccessreviews", "201") in codes
    assert not [resource for resource, code in codes if code == "403"]


def _allowed(answer: tuple[int, str]) -> tuple[int, str] | None:
    return answer if answer[0] == 200 else None
