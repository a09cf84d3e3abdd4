"""Tokens against keys of our own making: every way in which one may be wrong. Real tokens: see the integration test."""

import base64
import functools
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from muster.coordinator import auth
from muster.coordinator.auth import AuthError, Caller, TokenVerifier, claimed

ISSUER = "https://kubernetes.default.svc"
NOW = 1_800_000_000.0
BOUND = {
    "namespace": "team",
    "pod": {"name": "worker-0", "uid": "pod-uid"},
    "node": {"name": "node-1", "uid": "node-uid"},
    "serviceaccount": {"name": "default", "uid": "sa-uid"},
}


@functools.cache
def key(_name: str) -> rsa.RSAPrivateKey:
    """A key of this name, made when a test asks for it: pytest collects in each of its processes."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class ApiServer:
    """Publishes keys, counts how often it is asked, and may be down."""

    def __init__(self) -> None:
        self.keys = {"first": key("first")}
        self.asked = 0
        self.down = False

    async def fetch(self, path: str) -> bytes:
        self.asked += 1
        if self.down:
            raise OSError("connection refused")
        if path == auth.DISCOVERY_PATH:
            return json.dumps({"issuer": ISSUER}).encode()
        assert path == auth.JWKS_PATH
        keys = []
        for name, private in self.keys.items():
            public = jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
            keys.append({**public, "kid": name, "alg": "RS256", "use": "sig"})
        return json.dumps({"keys": keys}).encode()


def token(signer: str = "first", kid: str = "first", **changes: Any) -> str:
    claims = {
        "iss": ISSUER,
        "aud": ["muster.dev/coordinator"],
        "exp": int(NOW) + 600,
        "nbf": int(NOW) - 10,
        "kubernetes.io": BOUND,
        **changes,
    }
    return "Bearer " + jwt.encode(claims, key(signer), algorithm="RS256", headers={"kid": kid})


@pytest.fixture
def api() -> ApiServer:
    return ApiServer()


class Times:
    wall = NOW


@pytest.fixture
def verifier(api: ApiServer, clock: Any) -> TokenVerifier:
    return TokenVerifier(api.fetch, clock=clock, wall_clock=lambda: Times.wall)


@pytest.fixture(autouse=True)
def _wall() -> None:
    Times.wall = NOW


async def test_caller_comes_from_the_claims(verifier: TokenVerifier, api: ApiServer) -> None:
    want = Caller("team", "worker-0", "pod-uid", "node-1", "node-uid", "default")
    assert verifier.known(token()) is None
    assert await verifier.verify(token()) == want
    assert verifier.known(token()) == want
    asked = api.asked
    api.down = True
    assert await verifier.verify(token()) == want
    assert await verifier.verify(token(exp=int(NOW) + 700)) == want
    assert api.asked == asked


NESTED = base64.urlsafe_b64encode(b'{"a":' + b"[" * 11_000).decode().rstrip("=")  # as deep as a head has room for


@pytest.mark.parametrize(
    ("authorization", "says"),
    [
        pytest.param(lambda: "", "projected service-account token", id="none"),
        pytest.param(lambda: "Basic abc", "projected service-account token", id="other scheme"),
        pytest.param(lambda: "Bearer nonsense", "not a service-account token", id="no token"),
        pytest.param(lambda: token(aud=["kubernetes"]), "audience muster.dev/coordinator", id="wrong audience"),
        pytest.param(lambda: token(exp=int(NOW) - 31), "has expired", id="expired"),
        pytest.param(lambda: token(nbf=int(NOW) + 31), "not valid yet", id="from the future"),
        pytest.param(lambda: token(iss="https://elsewhere"), "not issued by this cluster", id="other issuer"),
        pytest.param(lambda: token(signer="second"), "not valid", id="forged"),
        pytest.param(lambda: token(**{"kubernetes.io": {"namespace": "team"}}), "not bound to a pod", id="no pod"),
        pytest.param(
            lambda: token(**{"kubernetes.io": {k: v for k, v in BOUND.items() if k != "node"}}),
            "names no node",
            id="no node",
        ),
        pytest.param(
            lambda: "Bearer " + jwt.encode({"iss": ISSUER}, None, algorithm="none", headers={"kid": "first"}),
            "not valid",
            id="unsigned",
        ),
        pytest.param(lambda: f"Bearer {NESTED}.e30.c", "not a service-account token", id="nested"),
    ],
)
async def test_refused(verifier: TokenVerifier, authorization: Callable[[], str], says: str) -> None:
    with pytest.raises(AuthError, match=says) as caught:
        await verifier.verify(authorization())
    assert verifier.known(authorization()) is None
    assert caught.value.status == 401


async def test_expired_token_is_not_remembered_as_good(verifier: TokenVerifier) -> None:
    await verifier.verify(token())
    Times.wall = NOW + 600 + auth.LEEWAY_SECONDS
    assert verifier.known(token()) is None
    with pytest.raises(AuthError, match="expired"):
        await verifier.verify(token())


async def test_new_key_is_found_and_unknown_ones_do_not_flood_the_api_server(
    verifier: TokenVerifier, api: ApiServer, clock: Any
) -> None:
    await verifier.verify(token())
    asked = api.asked
    api.keys["second"] = key("second")
    new = token(signer="second", kid="second")
    for _ in range(5):
        with pytest.raises(AuthError, match="does not publish"):
            await verifier.verify(new)
    assert api.asked == asked
    clock.advance(auth.REFRESH_SECONDS)
    assert (await verifier.verify(new)).pod_uid == "pod-uid"


async def test_unreachable_api_server_is_not_the_callers_fault(
    verifier: TokenVerifier, api: ApiServer, clock: Any
) -> None:
    api.down = True
    for _ in range(3):
        with pytest.raises(AuthError) as caught:
            await verifier.verify(token())
        assert caught.value.status == 503
    assert api.asked == 1
    api.down = False
    clock.advance(auth.REFRESH_SECONDS)
    assert (await verifier.verify(token())).pod_uid == "pod-uid"


def test_what_a_token_claims_is_read_without_its_signature() -> None:
    want = Caller("team", "worker-0", "pod-uid", "node-1", "node-uid")
    assert claimed(token("second", "unknown")) == want
    old = {key: value for key, value in BOUND.items() if key != "node"}
    assert claimed(token(**{"kubernetes.io": old})) == Caller("team", "worker-0", "pod-uid", "", "")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer ",
        "Bearer a",
        "Bearer a.b.c",
        "Bearer a.e30.c",
        "Bearer a.\u00e9.c",
        f"Bearer a.{NESTED}.c",
        "Basic " + token()[7:],
    ],
)
def test_what_is_no_token_claims_nothing(authorization: str) -> None:
    assert claimed(authorization) is None


@pytest.mark.parametrize("bound", [None, "x", {"namespace": "team"}, {"pod": {"uid": 5}}])
def test_a_token_that_is_bound_to_no_pod_claims_nothing(bound: Any) -> None:
    assert claimed(token(**{"kubernetes.io": bound})) is None
