"""Serve the page over HTTP: three files and four questions. Each is answered within the rights of one user.

What a tenant wrote is sent as JSON strings without control characters. The browser may run or load only the page's own
two files.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from importlib import resources
from typing import Any

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware
from prometheus_client import generate_latest

from muster.answers import job_text
from muster.answers.overview import overview
from muster.answers.queue import (
    HOLDER_HEADS,
    NOT_COUNTED,
    QUEUE_HEADS,
    holder_cells,
    queue_cells,
    queue_view,
    score_text,
    start_text,
)
from muster.answers.reported import report
from muster.answers.text_parts import printable
from muster.answers.without_jobs import WITHOUT_JOBS
from muster.api.trainingjob import TrainingJob
from muster.coordinator.probes import LoopHeartbeat
from muster.goodput.opened import figures_as_of
from muster.goodput.prices import NO_PRICES
from muster.kube.access import Access, RefusedError, Right, User
from muster.kube.errors import ApiError
from muster.page import figures
from muster.page.connections import Connections, share_of
from muster.page.fleet import heat_map
from muster.page.goodput import PERIODS, Hours, Lives, Reports
from muster.page.life import life
from muster.page.rights import HEALTHS, HISTORY, NODES, jobs_in, namespaces_of
from muster.page.seen import Seen
from muster.page.shares import Metered, Shares
from muster.serve import Endpoint, open_metrics

MADE_SECONDS = 1.0  # maximum age of an answer: many readers cost little more than one
MAX_MADE = 64
MAX_AT_ONCE = 64  # requests that wait for the API server
MAX_UNKNOWN_TOKENS = 32  # of those with a new token: the others have the rest
MAX_OF_ONE = 16  # of one user, which may ask about a thousand namespaces
UNKNOWN_TOKENS = ""  # no user's name
UNKNOWN = "without a token that was known"
MAX_HEADER_BYTES = 16 * 1024  # a token has one or two thousand
MAX_NAME_CHARACTERS = 253  # Kubernetes' own limit: requested names are kept for a while
KEEPALIVE_SECONDS = 30.0
LINGERING_SECONDS = 0.0  # no request of the page has a body: a client's endless one is not read after the answer
# What a request costs beside its handler, which is measured, and what compressing its answer costs.
REQUEST_SECONDS, COMPRESSING_SECONDS_PER_BYTE = 0.0004, 2e-8
HANDSHAKE_SECONDS = 0.0014
UNKNOWN_COSTS = 5.0  # times as much is charged for a request without a token that was known: they have 2 % of the core

FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}

log = structlog.get_logger()
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Made:
    """Recent answers, by what they depend on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the answer, made now or a moment ago."""
        until, body = self._kept.get(key, (0.0, None))
        if self._clock() >= until:
            body = make()
            self._kept[key] = (self._clock() + MADE_SECONDS, body)
        self._kept.move_to_end(key)
        while len(self._kept) > MAX_MADE:
            self._kept.popitem(last=False)
        return body


class Page:
    """The application. `lives` reads all jobs, those that have ended included; `hours` reads what the accelerators of
    the fleet did. `clock` is monotonic.

    Attributes:
        connections: those over which requests come; None where no limits of connections hold.
        shares: what users take of the core.
    """

    def __init__(
        self,
        seen: Seen,
        access: Access,
        lives: Lives,
        hours: Hours,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._seen = seen
        self._access = access
        self._now = now
        self._made = Made(clock)
        self._reports = Reports(lives, hours, seen.prices, now, clock)
        self._inside: Counter[str] = Counter()  # requests by user, and unauthenticated ones together
        self.shares = Shares()
        self.connections: Connections | None = None

    def application(self) -> web.Application:
        """Return the page's own application."""
        made = web.Application(middlewares=[figures.measured, self._guarded()], client_max_size=1024)
        folder = resources.files("muster.page") / "static"
        for path, (file, kind) in FILES.items():
            made.router.add_get(path, _static((folder / file).read_text("utf-8"), kind))
        made.router.add_get("/api/jobs", self._for_user(self._jobs))
        made.router.add_get("/api/jobs/{namespace}/{name}", self._for_user(self._job))
        made.router.add_get("/api/queue", self._for_user(self._queue))
        made.router.add_get("/api/fleet", self._for_user(self._fleet))
        made.router.add_get("/api/report", self._for_user(self._report))
        return made

    def probes(self, beat: LoopHeartbeat) -> dict[str, Endpoint]:
        """Return the endpoints for the kubelet and Prometheus; a thread answers them."""
        figures.publish_age(lambda: self._seen.age_seconds)
        return {**beat.endpoints(), "/metrics": open_metrics(generate_latest)}

    def not_ready(self) -> str:
        """Say why no request can be answered now; "" when requests can."""
        return "" if self._seen.synced else "the cluster is being read"

    def _for_user(self, answer: Callable[[web.Request, User], Awaitable[Any]]) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            token = self._access.token(request.headers.get("Authorization", ""))
            # A known token is checked fast, and its sender is counted by user name.
            was_known = self._access.was_known(token)
            with self._room(UNKNOWN_TOKENS, MAX_UNKNOWN_TOKENS) if not was_known else nullcontext():
                user = await self._access.user_of_token(token)
            self._note_authenticated(request, user, was_known=was_known)
            if not self._seen.synced:
                raise RefusedError(503, "the cluster is being read: try again")
            with self._room(share_of(user.name), MAX_OF_ONE):
                body = await answer(request, user)
            response = web.json_response(
                {**body, "user": printable(user.name), "ageSeconds": round(self._seen.age_seconds)}
            )
            response.enable_compression()
            return response

        return handle

    def _note_authenticated(self, request: web.Request, user: User, *, was_known: bool) -> None:
        """Note that a good token of this user has come.

        Its handshake counts against the budget if its token is new, because anyone may make many tokens for one
        service account, or if the user has taken more than its share of the core.
        """
        share = share_of(user.name)
        is_free = was_known and self.shares.has_share(share)
        if self.connections is not None and self.connections.authenticated(
            request.transport, user.name, is_free=is_free
        ):
            self.shares.charge(share, HANDSHAKE_SECONDS)

    def _payer(self, request: web.Request) -> tuple[Hashable, float]:
        """Return whose share of the core a request takes, and how many times its cost is charged; 0: to no user.

        A request without a token that was known takes a share that other such requests on connections of the same
        user take, so that no reader behind the same gateway waits for it. Connections without a good token have few
        requests and need no share.
        """
        try:
            user = self._access.last_user(self._access.token(request.headers.get("Authorization", "")))
        except RefusedError:
            user = None
        if user is not None:
            return share_of(user.name), 1.0
        of_connection = self.connections.user_of(request.transport) if self.connections is not None else ""
        return ((of_connection, UNKNOWN), UNKNOWN_COSTS) if of_connection else (None, 0.0)

    def _guarded(self) -> Middleware:
        """Return what limits each request, adds the headers to every answer, and keeps internal text out of errors."""

        @web.middleware
        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            payer, times = self._payer(request)
            if not await self.shares.wait_for_share(payer, lambda: request.transport is not None):
                return web.Response(status=503)  # it is not read: the client has gone
            answering = Metered(_answered(request, handler))
            response = await answering
            if times:
                size = response.content_length or 0
                cost = REQUEST_SECONDS + answering.seconds + size * COMPRESSING_SECONDS_PER_BYTE
                self.shares.charge(payer, times * cost)
            if self.connections is not None and not self.connections.may_continue(
                request.transport, is_refused=response.status == 401
            ):
                response.force_close()
            return response

        return guarded

    @contextmanager
    def _room(self, who: str, most: int) -> Iterator[None]:
        """Take a place among the requests that wait.

        No user has more places than are free, so that some stay free for a user that has none.

        Raises:
            RefusedError: there are too many requests.
        """
        if self._inside[who] >= min(most, MAX_AT_ONCE - self._inside.total()):
            raise RefusedError(503, "too many ask at once: try again")
        self._inside[who] += 1
        try:
            yield
        finally:
            self._inside[who] -= 1
            if not self._inside[who]:
                del self._inside[who]

    async def _namespaces(self, user: User) -> frozenset[str] | None:
        return await namespaces_of(self._access, user, self._seen.namespaces())

    async def _jobs(self, request: web.Request, user: User) -> Any:
        visible = await self._namespaces(user)
        ended = request.query.get("ended") == "1"
        notes = [WITHOUT_JOBS] if self._seen.is_without_jobs else []
        return self._made.get(
            ("jobs", visible, ended),
            lambda: clean(overview(self._seen.jobs(visible), "", self._now(), ended=ended, notes=notes).to_json()),
        )

    async def _queue(self, _: web.Request, user: User) -> Any:
        visible = await self._namespaces(user)
        return self._made.get(("queue", visible), lambda: clean(self._queue_answer(visible)))

    def _queue_answer(self, visible: frozenset[str] | None) -> Any:
        """The queue as tables, of the jobs in the namespaces that the reader may see; None: of all."""
        jobs = [job for job in self._seen.jobs(visible) if isinstance(job, TrainingJob)]
        it = queue_view(jobs, "", self._now())
        tables = (
            ("Jobs that wait", QUEUE_HEADS, queue_cells(it)),
            ("Jobs that hold nodes", HOLDER_HEADS, holder_cells(it)),
        )
        return {
            "tables": [{"title": title, "heads": heads, "rows": rows} for title, heads, rows in tables if rows],
            "remarks": [f"{score_text(it.score)} ({NOT_COUNTED})", "times are UTC"],
        }

    async def _job(self, request: web.Request, user: User) -> Any:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        if max(len(namespace), len(name)) > MAX_NAME_CHARACTERS:
            raise RefusedError(404, "no job can be called so")
        if self._seen.is_without_jobs:
            raise RefusedError(404, WITHOUT_JOBS)
        # The right is checked first, so that users without it do not learn what exists. Prices are for users with the
        # right to see all jobs.
        sees_all = await self._access.has_right(user, jobs_in(""))
        if (
            not sees_all
            and not await self._access.has_right(user, jobs_in(namespace))
            and not await self._access.has_right(user, Right("get", "trainingjobs", namespace=namespace, name=name))
        ):
            raise RefusedError(403, "you may not see this job, or there is none: ask for ClusterRole muster-view there")
        job = self._seen.job(namespace, name)
        if job is None:
            raise RefusedError(404, "there is no such job")
        return self._made.get(("job", namespace, name, sees_all), lambda: clean(self._job_answer(job, sees_all)))

    def _job_answer(self, job: Any, sees_all: bool) -> Any:
        prices, now = self._seen.prices() if sees_all else NO_PRICES, self._now()
        row = overview([job], "", now, ended=True).to_json()["jobs"][0]
        if not isinstance(job, TrainingJob):
            return {"job": row}
        goodput = figures_as_of(job, now)
        made = report(job, goodput, prices, now) if goodput is not None and goodput.wall_seconds else None
        lived = life(job, now)
        return {
            "job": row,
            "message": next((c.message for c in reversed(job.status.conditions) if c.message), ""),
            "life": lived.to_json() if lived else None,
            "report": made.to_json() if made else None,
            "figures": [{"name": name, "value": value} for name, value in job_text.figures(made, with_cost=sees_all)]
            if made
            else [],
            "warnings": [warning.to_json() for warning in job.status.warnings],
            "waiting": job.status.waiting.to_json() if job.status.waiting else None,
            "starts": start_text(job, now),
            "incidents": [incident.to_json() for incident in job.status.incidents],
            "nodes": job.status.nodes,
        }

    async def _fleet(self, _: web.Request, user: User) -> Any:
        allowed = await asyncio.gather(*(self._access.has_right(user, right) for right in (NODES, HEALTHS)))
        if not all(allowed):
            raise RefusedError(403, "you may not see the fleet's nodes: ask for ClusterRole muster-fleet-view")
        visible = await self._namespaces(user)
        return self._made.get(("fleet", visible), lambda: clean(self._map(visible).to_json()))

    async def _report(self, request: web.Request, user: User) -> Any:
        asked = request.query.get("days", "30")
        if asked not in ("0", *map(str, PERIODS)):
            raise RefusedError(400, f"write days=0 for all that is kept, or one of {', '.join(map(str, PERIODS))}")
        allowed = await asyncio.gather(*(self._access.has_right(user, right) for right in (jobs_in(""), HISTORY)))
        if not all(allowed):
            raise RefusedError(403, "you may not see all jobs and their history: ask for ClusterRole muster-fleet-view")
        try:
            return clean(await self._reports.get(int(asked)))
        except ApiError as error:
            raise RefusedError(503, f"the history cannot be read: {printable(str(error))}") from error

    def _map(self, visible: frozenset[str] | None) -> Any:
        jobs = [job for job in self._seen.jobs(visible) if isinstance(job, TrainingJob)]
        return heat_map(self._now(), self._seen.levels(), self._seen.nodes(), self._seen.healths(), jobs)


def clean(value: Any) -> Any:
    """Return the value without marks of direction and control characters, which are invisible or move text."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def _static(text: str, kind: str) -> Handler:
    async def handle(_: web.Request) -> web.StreamResponse:
        return web.Response(text=text, content_type=kind, charset="utf-8")

    return handle


async def _answered(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Have the request answered, with the headers of every answer and without internal text in errors."""
    response: web.StreamResponse
    try:
        response = await handler(request)
    except RefusedError as refused:
        response = web.json_response({"error": str(refused)}, status=refused.status)
        if refused.status == 401:
            response.headers["WWW-Authenticate"] = 'Bearer realm="Kubernetes"'
    except web.HTTPException as error:
        response = web.json_response({"error": error.reason}, status=error.status)
    except Exception:
        log.exception("page not answered", path=request.path)
        response = web.json_response({"error": "a defect of the page: its log says more"}, status=500)
    response.headers.update(HEADERS)
    return response
