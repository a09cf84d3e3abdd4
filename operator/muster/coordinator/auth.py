"""Who is calling: a pod's projected service-account token, checked against the API server's public keys.

No call to the API server is needed per request, so launchers are served while it is down. What a token proves is which
pod runs on which node, and as which account; which job that pod belongs to is never taken from the caller.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jwt
import msgspec
from jwt.utils import base64url_decode

from muster.protocol.messages import TOKEN_AUDIENCE

JWKS_PATH = "/openid/v1/jwks"
DISCOVERY_PATH = "/.well-known/openid-configuration"
LEEWAY_SECONDS = 30.0
REFRESH_SECONDS = 5.0  # at most one look for new keys in this time
MAX_CACHED = 16384

_ALGORITHMS = ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512"]


class AuthError(Exception):
    """A caller's token was refused; the message says what to do. `status` is 401, or 503 while signing keys are
    missing."""

    def __init__(self, message: str, status: int = 401) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    """The pod that a token was issued to."""

    namespace: str
    pod_name: str
    pod_uid: str
    node_name: str
    node_uid: str
    service_account: str = ""  # its name; it is one of the pod's namespace


class TokenVerifier:
    """Verifies tokens.

    Args:
        fetch: reads a path of the API server: the keys and the issuer's name are asked for when needed.
        audience: that a token has to name.
        clock: monotonic, for rate limits.
        wall_clock: seconds since the epoch, for exp and nbf.
    """

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[bytes]],
        *,
        audience: str = TOKEN_AUDIENCE,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._audience = audience
        self._clock = clock
        self._wall_clock = wall_clock
        self._issuer = ""
        self._keys: dict[str, jwt.PyJWK] = {}
        self._refreshed_at: float | None = None
        self._refreshing = asyncio.Lock()
        self._verified: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()  # token hash -> caller, expiry

    def known(self, authorization: str) -> Caller | None:
        """The caller of an `Authorization` header that was verified before and has not expired; None for any other
        header."""
        fingerprint = _fingerprint(_token(authorization))
        caller, expiry = self._verified.get(fingerprint, _NOBODY)
        if caller is None or self._wall_clock() >= expiry:
            return None
        self._verified.move_to_end(fingerprint)
        return caller

    async def verify(self, authorization: str) -> Caller:
        """Verify an `Authorization` header, and return the pod that its token was issued to.

        Raises:
            AuthError: the token is missing, wrong, expired, or bound to no pod; or the signing keys could not be read.
        """
        token = _token(authorization)
        if not token:
            raise AuthError("send `Authorization: Bearer <token>` with the pod's projected service-account token")
        claims = await self._check(token)
        caller = _caller(claims)
        self._verified[_fingerprint(token)] = (caller, float(claims["exp"]))
        while len(self._verified) > MAX_CACHED:
            self._verified.popitem(last=False)
        return caller

    async def _check(self, token: str) -> Mapping[str, Any]:
        key = await self._key(_key_id(token))
        try:
            # Times are checked below, on the clock given.
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=_ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                options={
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.InvalidAudienceError as error:
            raise AuthError(f"the token is for another audience: project one with audience {self._audience}") from error
        except jwt.InvalidIssuerError as error:
            raise AuthError(f"the token was not issued by this cluster ({self._issuer})") from error
        except jwt.InvalidTokenError as error:
            raise AuthError(f"the token is not valid: {error}") from error
        now = self._wall_clock()
        if now >= float(claims["exp"]) + LEEWAY_SECONDS:
            raise AuthError("the token has expired: read the projected file again on each request")
        if float(claims.get("nbf", 0)) > now + LEEWAY_SECONDS:
            raise AuthError("the token is not valid yet: the clocks of this node and of the API server disagree")
        return claims

    async def _key(self, key_id: str) -> jwt.PyJWK:
        if key_id not in self._keys:
            await self._refresh(key_id)
        key = self._keys.get(key_id)
        if not self._keys:
            raise AuthError("the API server's token keys have not been read yet: try again", status=503)
        if key is None:
            raise AuthError("the token is signed with a key that the API server does not publish")
        return key

    async def _refresh(self, wanted: str) -> None:
        async with self._refreshing:
            now = self._clock()
            if wanted in self._keys or (self._refreshed_at is not None and now - self._refreshed_at < REFRESH_SECONDS):
                return
            self._refreshed_at = now
            try:
                discovery = msgspec.json.decode(await self._fetch(DISCOVERY_PATH))
                published = msgspec.json.decode(await self._fetch(JWKS_PATH))
                keys = {str(key["kid"]): jwt.PyJWK(key) for key in published["keys"]}
                issuer = str(discovery["issuer"])
            except Exception as error:  # whatever `fetch` raises: say that no token can be verified
                raise AuthError(
                    f"the API server's token keys cannot be read ({error}): try again", status=503
                ) from error
            self._keys, self._issuer = keys, issuer


def claimed(authorization: str) -> Caller | None:
    """The pod that a token claims to be issued to, whether the token is good or not; None where it names no pod.

    The claim proves nothing.
    """
    try:
        claims = _claims.decode(base64url_decode(_token(authorization).split(".")[1]))
    except (IndexError, ValueError, RecursionError):
        return None
    bound = claims.bound
    return Caller(
        namespace=bound.namespace,
        pod_name=bound.pod.name,
        pod_uid=bound.pod.uid,
        node_name=bound.node.name,
        node_uid=bound.node.uid,
    )


_NOBODY: tuple[None, float] = (None, 0.0)


def _token(authorization: str) -> str:
    """The bearer token in an `Authorization` header; "" where the header has none."""
    scheme, _, token = authorization.partition(" ")
    return token if scheme.lower() == "bearer" else ""


def _fingerprint(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class _Header(msgspec.Struct):
    kid: str = ""


_headers = msgspec.json.Decoder(_Header)


class _Named(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Bound(msgspec.Struct):
    pod: _Named
    namespace: str = ""
    node: _Named = msgspec.field(default_factory=_Named)


class _Claims(msgspec.Struct):
    bound: _Bound = msgspec.field(name="kubernetes.io")


_claims = msgspec.json.Decoder(_Claims)


def _key_id(token: str) -> str:
    """The id of the key with which a token claims to be signed. The rest of the token is read only when it is
    verified."""
    try:
        return _headers.decode(base64url_decode(token.partition(".")[0])).kid
    except (ValueError, RecursionError) as error:
        raise AuthError(f"not a service-account token: {error}") from error


def _caller(claims: Mapping[str, Any]) -> Caller:
    bound = claims.get("kubernetes.io") or {}
    pod, node = bound.get("pod") or {}, bound.get("node") or {}
    account = bound.get("serviceaccount") or {}
    if not pod.get("uid"):
        raise AuthError("the token is not bound to a pod: use a projected service-account token, not a secret")
    if not node.get("uid"):
        raise AuthError("the token names no node: Kubernetes 1.33 or later puts the node into projected tokens")
    return Caller(
        namespace=str(bound.get("namespace", "")),
        pod_name=str(pod.get("name", "")),
        pod_uid=str(pod["uid"]),
        node_name=str(node.get("name", "")),
        node_uid=str(node["uid"]),
        service_account=str(account.get("name", "")),
    )
