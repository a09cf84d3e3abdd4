"""Who sends a token and what it may read: the API server's own answers (TokenReview, SubjectAccessReview), kept
briefly.

The page and the operator's metrics never decide about rights by themselves: where the API server does not answer,
nothing is shown. Answers are bounded in number and age, and of the same question there is only one on its way.
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
"""For so long a token that has been revoked, or a right that has been taken, may still be good here."""
MAX_USERS = 1024
MAX_STRANGERS = 1024
MAX_ANSWERS = 16384
MAX_TOKEN_CHARACTERS = 8192
ASK_SECONDS = 5.0
AT_ONCE = 8  # questions to the API server about who is known
STRANGERS_AT_ONCE = (
    4  # about tokens: who sends wrong ones by the thousand delays others like him, and nobody who was known before
)

T = TypeVar("T")


class RefusedError(Exception):
    """Nothing is shown; says why, with the status of the answer: 401, 403, or 503 while nobody can be known."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class User:
    """Somebody, as the API server knows him."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Right:
    """One right: on a resource (no namespace: in all of them), or on a path that is no resource."""

    verb: str
    resource: str = ""
    group: str = GROUP
    namespace: str = ""
    name: str = ""
    path: str = ""


class Remembered(Generic[T]):
    """Answers that are kept for a while, the ones used last; an error is not kept."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._answers: OrderedDict[Hashable, tuple[float, asyncio.Task[T]]] = OrderedDict()

    async def ask(self, question: Hashable, answer: Callable[[], Awaitable[T]]) -> T:
        """The answer that is kept or on its way, else a new one; whoever stops waiting takes it from nobody else."""
        until, task = self._answers.get(question, (0.0, None))
        if task is None or self._clock() >= until or (task.done() and _failed(task)):
            until, task = self._clock() + KEPT_SECONDS, asyncio.ensure_future(_run(answer))
        self.put(question, (until, task))
        return await asyncio.shield(task)

    def __contains__(self, question: Hashable) -> bool:
        return question in self._answers

    def __len__(self) -> int:
        return len(self._answers)

    def move(self, question: Hashable, to: "Remembered[T]") -> None:
        """Keep an answer somewhere else, for as long as it was to be kept here."""
        if question in self._answers:
            to.put(question, self._answers.pop(question))

    def put(self, question: Hashable, answer: tuple[float, "asyncio.Task[T]"]) -> None:
        """Keep an answer until a moment; the one that nobody has used for the longest time goes."""
        self._answers[question] = answer
        self._answers.move_to_end(question)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


async def _run(answer: Callable[[], Awaitable[T]]) -> T:
    return await answer()


def _failed(task: "asyncio.Task[Any]") -> bool:
    return task.cancelled() or task.exception() is not None


def _digest(token: str) -> bytes:
    """What is kept in memory is worth nothing to who reads it."""
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
    """Asks the API server.

    Args:
        clock: monotonic.
    """

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._users: Remembered[User | None] = Remembered(MAX_USERS, clock)
        self._strangers: Remembered[User | None] = Remembered(MAX_STRANGERS, clock)
        self._rights: Remembered[bool] = Remembered(MAX_ANSWERS, clock)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._strangers_turns = asyncio.Semaphore(STRANGERS_AT_ONCE)

    def token(self, authorization: str) -> str:
        """The token of this header.

        Raises:
            RefusedError: there is none that can be one.
        """
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise RefusedError(401, "send a token of this cluster: Authorization: Bearer TOKEN")
        if len(token) > MAX_TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
            raise RefusedError(401, "this is no token of this cluster")
        return token

    def was_known(self, token: str) -> bool:
        """Whether the cluster knew this token when it was last asked about it: he need not wait behind strangers."""
        return _digest(token) in self._users

    async def user_of_token(self, token: str) -> User:
        """Whose token this is.

        Raises:
            RefusedError: nobody known, or the API server does not say.
        """
        key = _digest(token)
        known = key in self._users
        asked, turns = (self._users, self._turns) if known else (self._strangers, self._strangers_turns)
        user = await asked.ask(key, lambda: self._reviewed(token, turns))
        if known != (user is not None):
            asked.move(key, self._strangers if known else self._users)
        if user is None:
            raise RefusedError(401, "the cluster does not know this token, or it has expired: get a new one")
        return user

    async def has_right(self, user: User, right: Right) -> bool:
        """Whether he has this right.

        Raises:
            RefusedError: the API server does not say.
        """
        return await self._rights.ask((user, right), lambda: self._allowed(user, right))

    async def _reviewed(self, token: str, turns: asyncio.Semaphore) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = await self._ask("authentication.k8s.io/v1", "tokenreviews", body, turns)
        if not status.authenticated or status.user is None or not status.user.username:
            return None
        found = status.user
        extra = tuple((name, tuple(values)) for name, values in sorted((found.extra or {}).items()))
        return User(found.username, found.uid, tuple(found.groups or ()), extra)

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
        status = await self._ask("authorization.k8s.io/v1", "subjectaccessreviews", body, self._turns)
        return status.allowed and not status.denied

    async def _ask(self, api_version: str, resource: str, body: dict[str, Any], turns: asyncio.Semaphore) -> _Status:
        path = paths.group(api_version, resource)
        try:
            async with asyncio.timeout(2 * ASK_SECONDS), turns:
                answer = await self._client.post(path, body, guarded=False, deadline_seconds=ASK_SECONDS)
            return _reviews.decode(answer).status
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            # What was asked has the token in it: none of the error is told.
            raise RefusedError(
                503, "the API server does not say who you are and what you may see: try again"
            ) from error
