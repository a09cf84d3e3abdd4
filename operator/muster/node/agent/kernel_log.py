"""Reads the kernel log as it grows: /dev/kmsg, a pipe, or a file that another program writes (test nodes, syslog).

All work is bounded. Of a file that grows faster than it is read, parts are skipped. The length of a line is limited,
and a repeated line is found in a cache instead of parsed.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from muster.node.agent import log_lines
from muster.node.agent.log_lines import LogFact

_RECORD_BYTES = 16 * 1024
_MAX_RECORDS = 5_000
_CHUNK_BYTES = 1024 * 1024
_MAX_BEHIND_BYTES = 8 * 1024 * 1024
_REMEMBERED = 64


@dataclass(frozen=True)
class LogEntry:
    """One message of the log, and its time in seconds since boot; None: just now."""

    fact: LogFact
    boot_seconds: float | None


class KernelLog:
    """One kernel log; `read` never blocks."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._is_file = False
        self._inode = 0
        self._rest = b""
        self._skip_undated = False
        self._seen: dict[str, LogFact | None] = {}
        self._joiner = log_lines.Joiner()
        self.lines = 0
        self.skipped_bytes = 0
        self.problem = ""
        self.caught_up = False
        """Whether the last `read` reached the end of the log."""

    def fileno(self) -> int | None:
        """Return a descriptor to wait for; None for a file that has to be polled."""
        return self._descriptor if self._descriptor >= 0 and not self._is_file else None

    def open(self) -> bool:
        """Open the log if it is not open; from its beginning, because the XIDs of this boot count."""
        if self._descriptor >= 0:
            return True
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            status = os.fstat(self._descriptor)
        except OSError as error:
            self.problem = f"the kernel log cannot be read ({self._path}: {error.strerror})"
            return False
        self.problem = ""
        self._is_file = stat.S_ISREG(status.st_mode)
        self._inode = status.st_ino
        self._rest = b""
        # Lines without a date that are already in a file may be of any boot.
        self._skip_undated = self._is_file
        return True

    def close(self) -> None:
        """Close the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self) -> Iterator[LogEntry]:
        """Yield new entries, as many as one call may read."""
        self.caught_up = False
        if not self.open():
            return
        lines = self._file_lines() if self._is_file else self._records()
        for line in lines:
            self.lines += 1
            text = line.decode("utf-8", "replace")
            if not log_lines.may_be_known(text):
                continue
            parts = log_lines.split(text)
            if parts is None:
                continue
            message, boot_seconds = parts
            if boot_seconds is None and self._skip_undated:
                continue
            fact = self._parsed(self._joiner.joined(message))
            if fact is not None:
                yield LogEntry(fact, boot_seconds)
        self._skip_undated = False

    def _parsed(self, message: str) -> LogFact | None:
        if message not in self._seen:
            if len(self._seen) >= _REMEMBERED:
                self._seen.clear()
            self._seen[message] = log_lines.parse(message)
        return self._seen[message]

    def _records(self) -> Iterator[bytes]:
        """Yield the records of /dev/kmsg, where each read gives one, or those of a pipe."""
        for _ in range(_MAX_RECORDS):
            try:
                data = os.read(self._descriptor, _RECORD_BYTES)
            except BlockingIOError:
                self.caught_up = True
                return
            except OSError as error:
                # the record was overwritten before it was read; go on with the oldest one
                if error.errno == errno.EPIPE:
                    continue
                self.problem = f"the kernel log cannot be read ({self._path}: {error.strerror})"
                self.close()
                return
            if not data:
                if self._rest:
                    yield self._rest
                self.close()
                return
            # A record is followed by its properties, each on a line that begins with a space.
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._rest = self._rest[-_RECORD_BYTES:]
            yield from (line for line in whole if not line.startswith(b" "))

    def _file_lines(self) -> Iterator[bytes]:
        try:
            status = self._path.stat()
        except OSError:
            self.close()
            return
        position = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        if status.st_ino != self._inode or status.st_size < position:
            yield from self._rest_of_file(position)  # the lines written before the file was rotated or cut
            self.close()
            if not self.open():
                return
            self._skip_undated = False
            position = 0
        yield from self._rest_of_file(position)

    def _rest_of_file(self, position: int) -> Iterator[bytes]:
        behind = os.fstat(self._descriptor).st_size - position
        self.caught_up = behind <= _CHUNK_BYTES
        if behind <= 0:
            return
        if behind > _MAX_BEHIND_BYTES:
            self.skipped_bytes += behind - _MAX_BEHIND_BYTES
            os.lseek(self._descriptor, behind - _MAX_BEHIND_BYTES, os.SEEK_CUR)
            self._rest = b""
        data = os.read(self._descriptor, _CHUNK_BYTES)
        *whole, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-_RECORD_BYTES:]
        yield from whole
