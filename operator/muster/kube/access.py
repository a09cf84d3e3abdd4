"""Which user sends a token and what that user may read: the API server's own answers (TokenReview,
SubjectAccessReview), kept briefly.

The page and the operator's metrics never decide about rights by themselves: where the API server does not answer,
nothing is shown. Answers are bounded in number and age, and the same question is never asked twice at the same time.

Tests: tests/unit/page/test_server.py.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from muster.api.base import GROUP
from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import ApiError

KEPT_SECONDS = 30.0
"""An answer is kept for this long: a token or a right that was revoked meanwhile may still be accepted here."""
MAX_USERS = 1024
MAX_UNKNOWN_TOKENS = 1024
MAX_ANSWERS = 16384
MAX_TOKEN_CHARACTERS = 8192
ASK_SECONDS = 5.0
AT_ONCE = 8  # questions to the API server about tokens that it has accepted before
UNKNOWN_TOKENS_AT_ONCE = (
    4  # about other tokens: a flood of wrong ones delays only requests with tokens that were never accepted
)

T = TypeVar("T")


class RefusedError(Exception):
    """The request is refused: the message says why. The status is 401, 403, or 503 while the user cannot be
    determined."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class User:
    """A user as the API server knows it: its name, groups and further attributes."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Right:
    """One right: on a resource (without a namespace: in all namespaces), or on a path that is not a resource."""

    verb: str
    resource: str = ""
    group: str = GROUP
    namespace: str = ""
    name: str = ""
    path: str = ""


class Remembered(Generic[T]):
    """A bounded cache of answers that are kept for a while, the most recently used ones. Errors are not kept."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[T]]] = OrderedDict()

    async def ask(self, question: Hashable, answer: Callable[[], Awaitable[T]]) -> T:
        """Return the answer that is kept or on its way, else ask for a new one. A caller that is cancelled does not
        cancel the question for the other callers."""
        until, task = self._answers.get(question, (0.0, None))
        if task is None or self._clock() >= until or (task.done() and _failed(task)):
            until, task = self._clock() + KEPT_SECONDS, asyncio.ensure_future(_run(answer))
        self.keep(question, (until, task))
        return await asyncio.shield(task)

    def __contains__(self, question: Hashable) -> bool:
        return question in self._answers

    def __len__(self) -> int:
        return len(self._answers)

    def last(self, question: Hashable) -> T | None:
        """Return the answer that is kept, however old it is; None where there is none."""
        _, task = self._answers.get(question, (0.0, None))
        return task.result() if task is not None and task.done() and not _failed(task) else None

    def move(self, question: Hashable, to: "Remembered[T]") -> None:
        """Move an answer to another cache; the moment at which it expires stays the same."""
        if question in self._answers:
            to.keep(question, self._answers.pop(question))

    def keep(self, question: Hashable, answer: tuple[float, "asyncio.Task[T]"]) -> None:
        """Keep an answer until a given moment. When there are too many, the least recently used answer is dropped."""
        self._answers[question] = answer
        self._answers.move_to_end(question)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


async def _run(answer: Callable[[], Awaitable[T]]) -> T:
    return await answer()


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.cancelled() or task.exception() is not None


def _digest(token: str) -> bytes:
    """Return a digest of the token: only digests are kept in memory, so a memory dump reveals no token."""
    return hashlib.sha256(token.encode()).digest()


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    allowed: bool = False
    denied: bool = False
    user: _User | None = None


class _Review(msgspec.Struct):
    status: _Status


_reviews = msgspec.json.Decoder(_Review)


class Access:
    """Asks the API server about tokens and rights, and remembers its answers. `clock` is monotonic."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._users: Remembered[User | None] = Remembered(MAX_USERS, clock)
        self._unknown_tokens: Remembered[User | None] = Remembered(MAX_UNKNOWN_TOKENS, clock)
        self._rights: Remembered[bool] = Remembered(MAX_ANSWERS, clock)
        self._known_token_slots = asyncio.Semaphore(AT_ONCE)
        self._unknown_token_slots = asyncio.Semaphore(UNKNOWN_TOKENS_AT_ONCE)

    def token(self, authorization: str) -> str:
        """Return the token in this Authorization header.

        Raises:
            RefusedError: the header holds nothing that can be a token.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise RefusedError(401, "send a token of this cluster: Authorization: Bearer TOKEN")
        if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
            raise RefusedError(401, "this is no token of this cluster")
        return token

    def was_known(self, token: str) -> bool:
        """Whether the cluster accepted this token when it was last asked about it. Such a request does not wait behind
        requests with unknown tokens."""
        return _digest(token) in self._users

    def last_user(self, token: str) -> User | None:
        """The user of this token when the cluster was last asked about it; None where it was not accepted, or never
        asked about. This says who pays for a request, and allows nothing."""
        return self._users.last(_digest(token))

    async def user_of_token(self, token: str) -> User:
        """Return the user to which this token belongs.

        Raises:
            RefusedError: the token belongs to no user, or the API server does not answer.
        """
        key = _digest(token)
        is_known = key in self._users
        asked, slots = (
            (self._users, self._known_token_slots) if is_known else (self._unknown_tokens, self._unknown_token_slots)
        )
        user = await asked.ask(key, lambda: self._reviewed(token, slots))
        if is_known != (user is not None):
            asked.move(key, self._unknown_tokens if is_known else self._users)
        if user is None:
            raise RefusedError(401, "the cluster does not know this token, or it has expired: get a new one")
        return user

    async def has_right(self, user: User, right: Right) -> bool:
        """Whether the user has this right.

        Raises:
            RefusedError: the API server does not answer.
        """
        return await self._rights.ask((user, right), lambda: self._allowed(user, right))

    async def _reviewed(self, token: str, slots: asyncio.Semaphore) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._ask("authentication.k8s.io/v1", "tokenreviews", body, slots)
        if not status.authenticated or status.user is None or not status.user.username:
            return None
        reviewed = status.user
        extra = tuple((name, tuple(values)) for name, values in sorted((reviewed.extra or {}).items()))
        return User(reviewed.username, reviewed.uid, tuple(reviewed.groups or ()), extra)

    async def _allowed(self, user: User, right: Right) -> bool:
        of_resource = {"verb": right.verb, "group": right.group, "resource": right.resource}
        of_resource |= {key: value for key, value in (("namespace", right.namespace), ("name", right.name)) if value}
        of_path = {"verb": right.verb, "path": right.path}
        spec = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {name: list(values) for name, values in user.extra},
            **({"nonResourceAttributes": of_path} if right.path else {"resourceAttributes": of_resource}),
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = await self._ask("authorization.k8s.io/v1", "subjectaccessreviews", body, self._known_token_slots)
        return status.allowed and not status.denied

    async def _ask(self, api_version: str, resource: str, body: dict[str, Any], slots: asyncio.Semaphore) -> _Status:
        path = paths.group(api_version, resource)
        try:
            async with asyncio.timeout(2 * ASK_SECONDS), slots:
                answer = await self._client.post(path, body, guarded=False, deadline_seconds=ASK_SECONDS)
            return _reviews.decode(answer).status
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            # The request contains the token: nothing of the error is shown.
            raise RefusedError(
                503, "the API server does not answer who you are and what you may see: try again"
            ) from error
