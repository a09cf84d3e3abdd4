"""The connection that `Muster` and its jobs share: it ends when none of them is used any more, or is closed.

Tests: tests/unit/client/test_muster.py.
"""

import contextlib
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import TypeVar

from muster.cli.errors import CliError
from muster.cli.session import Options, Session, open_session
from muster.client.background import BackgroundLoop
from muster.client.errors import NotConnectedError, from_answer, from_command, in_python
from muster.kube.errors import ApiError

T = TypeVar("T")


class ClusterConnection:
    """Asks the API server for code that is not asynchronous; all errors are those of this library.

    Attributes:
        session: with the namespace of the options.

    Raises:
        NotConnectedError: there is no usable kubeconfig, or no such context.
    """

    def __init__(self, options: Options) -> None:
        self._loop = BackgroundLoop()
        try:
            self.session = self._loop.run(open_session(options))
        except CliError as error:
            self._loop.close(_nothing())
            raise NotConnectedError(in_python(str(error))) from error
        self.close = weakref.finalize(self, _close, self._loop, self.session)

    def ask(self, session: Session, find: Callable[[Session], Awaitable[T]], *, writes: bool = False) -> T:
        """Return what is found.

        Raises:
            MusterError: the API server refuses or does not answer, or does not know what was asked for, or the
                connection was closed.
        """
        return self._loop.run(_asked(session, find, writes))

    def iterate(
        self, session: Session, generator: AsyncGenerator[T, None], timeout: float | None = None
    ) -> Iterator[T]:
        """Yield what a generator yields.

        Raises:
            MusterError: as of `ask`.
            DeadlineError: it did not end in time.
        """
        yield from self._loop.iterate(_translated(session, generator), timeout)


async def _asked(session: Session, find: Callable[[Session], Awaitable[T]], writes: bool) -> T:
    try:
        return await find(session)
    except CliError as error:
        raise from_command(error) from error
    except ApiError as error:
        raise await from_answer(session, error, writes=writes) from error


async def _translated(session: Session, generator: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    try:
        async with contextlib.aclosing(generator) as items:
            async for item in items:
                yield item
    except CliError as error:
        raise from_command(error) from error
    except ApiError as error:
        raise await from_answer(session, error, writes=False) from error


def _close(loop: BackgroundLoop, session: Session) -> None:
    loop.close(session.client.close())


async def _nothing() -> None:
    """Have nothing to close."""
