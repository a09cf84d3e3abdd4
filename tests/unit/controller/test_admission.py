"""What is said where an admission policy is missing: once, until it is there again."""

from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from muster.api.installation import InstallationProfile
from muster.controller import admission
from muster.controller.admission import OPERATOR, RECORDS, AdmissionCheck
from muster.kube.errors import Forbidden, Invalid, Unreachable

REFUSED = "ValidatingAdmissionPolicy '{0}' with binding '{0}' denied request: no"


class Server:
    """Answers dry runs: what it raises, by the last part of the path."""

    def __init__(self) -> None:
        self.raises: dict[str, Exception] = {
            "nodehealths": Invalid(422, "Invalid", REFUSED.format(RECORDS)),
            "configmaps": Invalid(422, "Invalid", REFUSED.format(OPERATOR)),
        }
        self.queries: list[Any] = []

    async def post(self, path: str, _body: Any, query: Any) -> bytes:
        self.queries.append(query)
        refusal = self.raises.get(path.rpartition("/")[2])
        if refusal is not None:
            raise refusal
        return b"{}"


@pytest.fixture
def server() -> Server:
    return Server()


async def asked(check: AdmissionCheck) -> list[dict[str, Any]]:
    """The lines of a log after each policy was asked for once."""
    with capture_logs() as lines:
        for policy, (path, body) in admission._refused_writes("muster-system").items():
            await check.ask(policy, path, body)
    return [dict(line) for line in lines]


def missing(policy: str) -> float | None:
    return REGISTRY.get_sample_value("muster_admission_policy_missing", {"policy": policy})


async def test_policies_in_force_are_no_news(server: Server) -> None:
    assert await asked(AdmissionCheck(server, "muster-system", InstallationProfile.JOBS)) == []  # type: ignore[arg-type]
    assert (missing(RECORDS), missing(OPERATOR)) == (0.0, 0.0)
    assert server.queries == [{"dryRun": "All"}] * 2


async def test_one_that_is_missing_is_said_once_until_it_is_there_again(server: Server) -> None:
    check = AdmissionCheck(server, "muster-system", InstallationProfile.JOBS)  # type: ignore[arg-type]
    refusal = server.raises.pop("nodehealths")
    (line,) = await asked(check)
    assert (line["event"], line["policy"], line["log_level"]) == ("admission policy missing", RECORDS, "error")
    assert "Apply your overlay again" in line["message"]
    assert await asked(check) == []
    assert (missing(RECORDS), missing(OPERATOR)) == (1.0, 0.0)
    server.raises["nodehealths"] = refusal
    assert await asked(check) == []
    assert missing(RECORDS) == 0.0
    del server.raises["nodehealths"]
    assert len(await asked(check)) == 1


@pytest.mark.parametrize("other", [Forbidden(403, "Forbidden", "no right"), Unreachable(0, "", "away")])
async def test_another_error_says_nothing_about_it(server: Server, other: Exception) -> None:
    check = AdmissionCheck(server, "muster-system", InstallationProfile.JOBS)  # type: ignore[arg-type]
    await asked(check)
    server.raises["nodehealths"] = other
    (line,) = await asked(check)
    assert line["event"] == "admission policy not checked"
    assert missing(RECORDS) == 0.0
