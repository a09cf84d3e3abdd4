"""The two conversations of one launcher with the coordinator, at the pace of muster.node.launcher.reporter.

One connection polls: its answer is held until the directive changes, and upon a new one the next poll waits a moment
for what the worker does about it. The other tells news while an answer is held, and speaks when the poll is overdue.
"""

import asyncio
import functools
import random
import time
from collections import Counter

from bench.launchers.channel import Channel, Endpoint, RefusedError, UnreachableError
from bench.launchers.worker import Worker
from muster.node.launcher.reporter_core import DONE_SECONDS
from muster.protocol.messages import Directive, decode_directive, digest_of, encode

ANSWER_SECONDS = 30.0  # the real one gives 3 s; here the machine may be far too small for so many, and that is no fault
LEAVE_SECONDS = 0.5  # for the last words after a SIGTERM
EXIT_SECONDS = 2.0  # for those after an Exit
MAX_BACKOFF_SECONDS = 2.0
FIRST_BACKOFF_SECONDS = 0.1
BETWEEN_POLLS_SECONDS = 0.05
LATE_SECONDS = 0.5
SHORTEST_POLL_SECONDS = 0.05


class Launcher:
    """One launcher's conversations.

    Args:
        counts: reports by the outcome: `answered`, `refused <status>`, `unreachable`, `last words unheard`.
    """

    def __init__(self, worker: Worker, endpoint: Endpoint, token: str, counts: Counter[str]) -> None:
        self.worker = worker
        self._endpoint = endpoint
        self._token = token
        self._counts = counts
        self._seen = ""
        self._pace = Directive(kind="")  # poll_seconds and hold_seconds of the last answer
        self._sent_at = time.monotonic()
        self._poll_speaks_next = True  # the next report is the poll's, and it carries the news
        self._poll_speaks_at = 0.0  # when it does so at the latest; in the past while it has trouble
        self._news = asyncio.Event()
        self._done: asyncio.Future[None] | None = None  # awaited by the poll until the worker has done as told
        self._timer: asyncio.TimerHandle | None = None
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Converge until told to exit; returns the exit code. Cancelling it is a power cut: nothing more is said."""
        channels = [Channel(self._endpoint, self._token) for _ in range(2)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._poll(channels[0])), group.create_task(self._tell(channels[1]))]
                code = await self._exit
                for task in tasks:
                    task.cancel()
            await self._last_report(EXIT_SECONDS)
            return code
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for channel in channels:
                channel.close()

    async def leave(self) -> None:
        """SIGTERM: the ranks end and one last report says so."""
        await self._last_report(LEAVE_SECONDS)

    async def _last_report(self, deadline_seconds: float) -> None:
        self.worker.kill(time.monotonic())
        channel = Channel(self._endpoint, self._token)
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._until_heard(channel, deadline_seconds)
        except TimeoutError:
            self._counts["last words unheard"] += 1
        finally:
            channel.close()

    async def _until_heard(self, channel: Channel, timeout_seconds: float) -> None:
        while True:
            try:
                await self._post(channel, 0.0, timeout_seconds)
                return
            except UnreachableError:
                await asyncio.sleep(FIRST_BACKOFF_SECONDS)

    def fail(self, exit_code: int) -> bool:
        """Ranks end by themselves (Worker.fail)."""
        failed = self.worker.fail(exit_code, time.monotonic())
        self._tick()
        return failed

    async def _poll(self, channel: Channel) -> None:
        failures = 0
        while True:
            hold = max(0.0, self._pace.hold_seconds) if self._seen else 0.0
            seen, sent_at = self._seen, time.monotonic()
            news, self.worker.changed = self.worker.changed, False
            self._poll_speaks_next, self._poll_speaks_at = False, sent_at + hold
            try:
                answered = await self._say(channel, hold, hold + ANSWER_SECONDS)
            except UnreachableError:
                failures += 1
                self._poll_speaks_at = 0.0
                self._gossip(news)
                await asyncio.sleep(_backoff(failures))
                continue
            failures = 0
            await self._until_done()
            if answered != seen:
                continue
            elapsed = time.monotonic() - sent_at
            if hold == 0:
                await self._pause(max(SHORTEST_POLL_SECONDS, self._pace.poll_seconds - elapsed))
            elif elapsed < hold:  # let go early
                await self._pause(BETWEEN_POLLS_SECONDS)

    async def _until_done(self) -> None:
        """Let the worker do what its directive says, for a moment: the next poll then tells the outcome."""
        loop = asyncio.get_running_loop()
        self._poll_speaks_next, self._poll_speaks_at = True, time.monotonic() + DONE_SECONDS
        if self.worker.is_done:
            return
        self._done = loop.create_future()
        timer = loop.call_later(DONE_SECONDS, _release, self._done)
        try:
            await self._done
        finally:
            timer.cancel()
            self._done = None

    async def _pause(self, seconds: float) -> None:
        self._poll_speaks_next = False
        self._gossip(self.worker.changed)
        await asyncio.sleep(seconds)

    def _gossip(self, news: bool) -> None:
        if news:
            self.worker.changed = True
            self._news.set()

    async def _tell(self, channel: Channel) -> None:
        failures = 0
        while True:
            await self._until_due()
            self.worker.changed = False
            try:
                await self._say(channel, 0.0, ANSWER_SECONDS)
            except UnreachableError:
                failures += 1
                self.worker.changed = True
                await asyncio.sleep(_backoff(failures))
                continue
            failures = 0

    async def _until_due(self) -> None:
        """Until there is news that the poll cannot carry, or nothing has been said for too long while ranks are
        here."""
        while not self.worker.changed or self._poll_speaks_next:
            pause = self._due_at() - time.monotonic()
            if self.worker.is_active and pause <= 0:
                return
            self._news.clear()
            timer = None
            if self.worker.is_active:
                timer = asyncio.get_running_loop().call_later(pause, self._news.set)
            try:
                await self._news.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    def _due_at(self) -> float:
        due_at = self._sent_at + max(SHORTEST_POLL_SECONDS, self._pace.poll_seconds)
        late_at = self._poll_speaks_at + LATE_SECONDS
        return late_at if due_at < late_at < due_at + 2 * LATE_SECONDS else due_at

    async def _say(self, channel: Channel, hold_seconds: float, timeout_seconds: float) -> str:
        """Returns the digest of the answer."""
        directive, seen = _decoded(await self._post(channel, hold_seconds, timeout_seconds))
        self._pace, self._seen = directive, seen
        self.worker.obey(directive)
        self._tick()
        return seen

    async def _post(self, channel: Channel, hold_seconds: float, timeout_seconds: float) -> bytes:
        self._sent_at = time.monotonic()
        report = self.worker.report(self._sent_at, self._seen, hold_seconds)
        try:
            body = await channel.exchange(encode(report), timeout_seconds)
        except RefusedError as refused:
            self._counts[f"refused {refused.status}"] += 1
            raise
        except UnreachableError:
            self._counts["unreachable"] += 1
            raise
        self._counts["answered"] += 1
        return body

    def _tick(self) -> None:
        """Let the worker converge, now and when it has asked to be looked at again."""
        worker, loop = self.worker, asyncio.get_running_loop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        worker.turn(time.monotonic())
        if self._done is not None and worker.is_done:
            _release(self._done)
        elif worker.changed and not self._poll_speaks_next:
            self._news.set()
        if worker.must_exit and not self._exit.done():
            assert worker.directive is not None
            self._exit.set_result(worker.directive.exit_code)
        next_at = worker.next_at()
        if next_at is not None:
            self._timer = loop.call_later(max(0.0, next_at - time.monotonic()), self._tick)


@functools.lru_cache(maxsize=8192)
def _decoded(body: bytes) -> tuple[Directive, str]:
    """The directive and its digest. Each one comes again and again."""
    return decode_directive(body), digest_of(body)


def _release(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


def _backoff(failures: int) -> float:
    longest = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)
