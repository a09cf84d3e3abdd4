"""The random numbers of a life: one stream for each purpose and object, so that a draw more moves no draw of another
stream."""

from random import Random


class Streams:
    """Streams by seed, purpose and names; each draw goes on where the last one of its stream ended."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._streams: dict[tuple[str, ...], Random] = {}

    def stream(self, purpose: str, *names: str) -> Random:
        """The stream for one purpose of one object, for example `stream("latency", "replica-1", "GET", path)`."""
        key = purpose, *names
        if (found := self._streams.get(key)) is None:
            found = self._streams[key] = Random("/".join((str(self._seed), *key)))
        return found
