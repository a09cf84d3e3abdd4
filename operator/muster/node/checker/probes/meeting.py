"""Lets the processes of an all-reduce between nodes find each other: through the coordinator, and not at an open port.

A process puts what gloo or NCCL publishes to the others, addresses and ids, in lines to its zygote. The checker sends
it to the coordinator in its report, by TLS and with its own token. The coordinator passes it on to the checkers with
the same order. Their zygotes write it into a file of the order's own folder, which their processes read.

torch needs a store with `set`, `get`, `wait`, `check` and `add`. A number to which several processes add is the sum of
what each has added, so no process has to own it.
"""

from __future__ import annotations

import base64
import json
import os
import time
import zlib
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

HERE = "muster/here"
"""Prefix of the key that each process puts first; its rank follows."""
MAX_KEY_CHARACTERS = 128
MAX_VALUE_CHARACTERS = 8 * 1024
"""The limit of a value as it is sent. Addresses of gloo shrink to a tenth."""
MAX_PUTS = 32
"""The limit of puts of one process in one meeting."""
MAX_VALUE_BYTES = 256 * 1024
"""The limit of a value before it is packed, and after it is unpacked."""
_POLL_SECONDS = 0.005

Put = Dict[str, Any]
"""{"rank", "key", "value": text, "add": number}: a value, or what this process has added."""


def packed(value: bytes) -> str:
    """Return a value in the form in which it is sent.

    Raises:
        RuntimeError: the value is too large.
    """
    text = base64.b64encode(zlib.compress(value, 9)).decode("ascii") if len(value) <= MAX_VALUE_BYTES else ""
    if not text or len(text) > MAX_VALUE_CHARACTERS:
        raise RuntimeError("a value of %d bytes is too large for a meeting" % len(value))
    return text


def unpacked(text: str) -> bytes:
    """Return the value from the form in which it was sent.

    Raises:
        RuntimeError: the text is not a value, or it is too large.
    """
    try:
        reader = zlib.decompressobj()
        value = reader.decompress(base64.b64decode(text, validate=True), MAX_VALUE_BYTES)
    except (ValueError, zlib.error) as error:
        raise RuntimeError("what another node has put cannot be read: %s" % error) from error
    if not reader.eof:
        raise RuntimeError("what another node has put is too large")
    return value


def write(path: str, puts: Iterable[Mapping[str, Any]]) -> None:
    """Replace the file with what all processes have put, as a whole."""
    with open(path + ".new", "w", encoding="ascii") as file:
        json.dump(list(puts), file)
    os.replace(path + ".new", path)


class Meeting:
    """One process's view of a meeting.

    Args:
        say: sends a line to the zygote.
        path: the file with what other processes have put; it may not exist yet.
        rank: rank of this process among all.
        wait_seconds: how long to wait for a key that no process has put.
    """

    def __init__(self, say: Callable[[Dict[str, Any]], None], path: str, rank: int, wait_seconds: float) -> None:
        self._say = say
        self._path = path
        self._rank = rank
        self._wait_seconds = wait_seconds
        self._own: Dict[str, Put] = {}
        self._others: List[Put] = []
        self._seen: Tuple[int, int, int] = (0, 0, 0)

    def gather(self, world: int) -> None:
        """Wait until all processes are here.

        Raises:
            RuntimeError: some processes have not come in time.
        """
        self.set("%s/%d" % (HERE, self._rank), b"")
        self.wait(["%s/%d" % (HERE, rank) for rank in range(world)], None)

    def set(self, key: str, value: bytes) -> None:
        """Put a value."""
        self._publish({"rank": self._rank, "key": key, "value": packed(value), "add": 0})

    def add(self, key: str, amount: int) -> int:
        """Add to a number; return the sum of what all processes have added, as far as it is known."""
        if amount or key not in self._own:
            own_amount = self._own.get(key, {"add": 0})["add"] + amount
            self._publish({"rank": self._rank, "key": key, "value": "", "add": own_amount})
        return sum(put["add"] for put in self._puts_of(key))

    def get(self, key: str) -> bytes:
        """Return the value of a key; wait for it.

        Raises:
            RuntimeError: no process has put the key in time.
        """
        self.wait([key], None)
        puts = list(self._puts_of(key))
        value = next((put["value"] for put in puts if put["value"]), "")
        return unpacked(value) if value else str(sum(put["add"] for put in puts)).encode("ascii")

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of these keys have been put."""
        self._read()
        known_keys = self._own.keys() | {put["key"] for put in self._others}
        return all(key in known_keys for key in keys)

    def wait(self, keys: Sequence[str], seconds: Optional[float]) -> None:
        """Wait until all of these keys have been put.

        Raises:
            RuntimeError: some keys have not been put in time.
        """
        limit = self._wait_seconds if seconds is None else seconds
        until = time.monotonic() + limit
        while not self.check(keys):
            if time.monotonic() >= until:
                missing = [key for key in keys if not self.check([key])]
                raise RuntimeError("timed out after %g s: no node has put %s" % (limit, ", ".join(missing[:4])))
            time.sleep(_POLL_SECONDS)

    def count(self) -> int:
        """Return the number of keys."""
        self._read()
        return len(self._own.keys() | {put["key"] for put in self._others})

    def _publish(self, put: Put) -> None:
        key = put["key"]
        if not 0 < len(key) <= MAX_KEY_CHARACTERS or (key not in self._own and len(self._own) >= MAX_PUTS):
            raise RuntimeError("too many keys for a meeting, or one too long: %.200s" % key)
        if self._own.get(key) != put:
            self._own[key] = put
            self._say({"put": put})

    def _puts_of(self, key: str) -> List[Put]:
        """Return the puts of a key, by rank: of several values all processes take the same."""
        self._read()
        puts = [put for put in self._others if put["key"] == key and put["rank"] != self._rank]
        puts += [self._own[key]] if key in self._own else []
        return sorted(puts, key=lambda put: int(put["rank"]))

    def _read(self) -> None:
        try:
            status = os.stat(self._path)
            seen = (status.st_ino, status.st_mtime_ns, status.st_size)
            if seen == self._seen:
                return
            with open(self._path, encoding="ascii") as file:
                self._others = json.load(file)
        except FileNotFoundError:
            return
        self._seen = seen


def store_of(torch: Any, meeting: Meeting) -> Any:
    """Return a torch store over a meeting. Keep it for as long as the group lives: C++ calls it."""

    class MeetingStore(torch.distributed.Store):  # type: ignore[misc]
        """A store with the methods that torch calls."""

        def set(self, key: str, value: Any) -> None:
            meeting.set(key, value.encode() if isinstance(value, str) else bytes(value))

        def get(self, key: str) -> bytes:
            return meeting.get(key)

        def add(self, key: str, amount: int) -> int:
            return meeting.add(key, amount)

        def check(self, keys: Sequence[str]) -> bool:
            return meeting.check(keys)

        def wait(self, keys: Sequence[str], timeout: Any = None) -> None:
            meeting.wait(keys, None if timeout is None else timeout.total_seconds())

        def num_keys(self) -> int:
            return meeting.count()

        def delete_key(self, _key: str) -> bool:
            return False

        def clone(self) -> Any:
            return self

        def set_timeout(self, _timeout: Any) -> None:
            """Ignore the time-out: the meeting limits each wait itself."""

    return MeetingStore()
