"""Processes that keep the coordinator's certificates, the Secrets that they keep them in, and who trusts them."""

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from muster.kube.certificates import AUTHORITY_SECRET_NAME, CertificateKeeper, Certificates, names_of
from muster.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = names_of("muster-system")
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


def trusts(bundle: bytes, serving: x509.Certificate, now: datetime) -> bool:
    for authority in x509.load_pem_x509_certificates(bundle):
        if (
            authority.subject == serving.issuer
            and authority.not_valid_before_utc <= now < authority.not_valid_after_utc
        ):
            try:
                serving.verify_directly_issued_by(authority)
            except InvalidSignature:
                continue
            return serving.not_valid_before_utc <= now < serving.not_valid_after_utc
    return False


class Secrets:
    """The API server's Secrets; a process that uses it may die at each write, before or after it was taken."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.dies_at = 0  # with this write; 0: never
        self.dies_before = False
        self.beside: Any = None  # done once before the next write: what another replica does meanwhile

    def data(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.objects[name]["data"].items()}

    def put_data(self, name: str, **values: bytes) -> None:
        version = str(
            int(self.objects.get(name, {"metadata": {"resourceVersion": "0"}})["metadata"]["resourceVersion"]) + 1
        )
        encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in values.items()}
        self.objects[name] = {"metadata": {"name": name, "resourceVersion": version}, "data": encoded}

    async def get(self, path: str) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.objects:
            raise NotFound(404, "NotFound", "no such Secret")
        return json.dumps(self.objects[name]).encode()

    async def post(self, _: str, body: Any) -> bytes:
        name = body["metadata"]["name"]
        self._dies(name, before=True)
        if name in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        return self._store(name, body)

    async def put(self, path: str, body: Any) -> bytes:
        name = path.rpartition("/")[2]
        self._dies(name, before=True)
        if self.objects[name]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        return self._store(name, body)

    def _store(self, name: str, body: Any) -> bytes:
        version = str(int(body["metadata"].get("resourceVersion", "0")) + 1)
        self.objects[name] = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        self._dies(name, before=False)
        return json.dumps(self.objects[name]).encode()

    def _dies(self, name: str, *, before: bool) -> None:
        if before:
            self.writes.append(name)
            beside, self.beside = self.beside, None
            if beside is not None:
                beside()
        if self.dies_at == len(self.writes) and self.dies_before == before:
            raise Unreachable(0, "Unreachable", "the process has died")


class Leaders:
    """Processes that lead one after the other, and the time."""

    def __init__(self) -> None:
        self.secrets = Secrets()
        self.now = START
        self.replace()

    def replace(self) -> None:
        """Another process leads."""
        self.keeper = self.another()

    def another(self, **more: Any) -> CertificateKeeper:
        client: Any = self.secrets
        return CertificateKeeper(client, "muster-system", lambda: self.now, **more)

    def ensure(self) -> Certificates:
        return asyncio.run(self.keeper.ensure())

    def read(self) -> Certificates:
        found = asyncio.run(self.keeper.read())
        assert found is not None
        return found


def assert_that_nobody_distrusts(leaders: Leaders, step: timedelta) -> None:
    """For two years and a half: the bundle that was mounted a step ago trusts the serving certificate of today, and
    back."""
    current = leaders.ensure()
    authorities: set[bytes] = set()
    while leaders.now < START + 900 * DAY:
        leaders.now += step
        mounted, current = current, leaders.ensure()
        authorities.add(leaders.secrets.data(AUTHORITY_SECRET_NAME)["ca.crt"])
        assert trusts(mounted.bundle, current.serving.parsed, leaders.now)
        assert trusts(current.bundle, current.serving.parsed, leaders.now)
        # A replica that has not reloaded yet serves what was current before, unless that has just ended.
        if mounted.serving.parsed.not_valid_after_utc > leaders.now:
            assert trusts(current.bundle, mounted.serving.parsed, leaders.now)
        assert len(x509.load_pem_x509_certificates(current.bundle)) <= 3
    assert len(authorities) >= 4


def assert_that_jobs_have_the_next_authority_a_month_before(leaders: Leaders, step: timedelta) -> None:
    first = leaders.ensure()
    shown: dict[bytes, datetime] = {}
    while True:
        leaders.now += step
        found = leaders.ensure()
        for each in x509.load_pem_x509_certificates(found.bundle):
            shown.setdefault(each.public_bytes(serialization.Encoding.PEM), leaders.now)
        if not trusts(first.bundle, found.serving.parsed, leaders.now):
            break
    signs = leaders.secrets.data(AUTHORITY_SECRET_NAME)["ca.crt"]
    assert leaders.now - shown[signs] >= 30 * DAY


def assert_that_a_clock_ahead_is_made_up_for(leaders: Leaders, ahead: timedelta, every_hours: int) -> None:
    leaders.ensure()
    right = leaders.now
    leaders.now = right + ahead
    leaders.ensure()
    for hours in range(1, 24 * 40, every_hours):
        leaders.now = right + hours * HOUR
        found = leaders.ensure()
        assert trusts(found.bundle, found.serving.parsed, leaders.now)
