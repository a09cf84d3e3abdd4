"""Checkpoints in an object store, or wherever else a URL leads: seen through the fsspec of the user's own image.

A store has no directories: what is listed is grouped by the slashes in the names, and an object that is there is there
whole. What one look has listed is kept until the next one begins. So a look costs one request for the directory, and
one for each checkpoint and thousand objects in it. Times are the store's own. Where one second holds two versions of an
object, its ETag or generation tells them apart.

Whatever the user's packages raise becomes a StorageError that says what to repair. A listing that failed is never taken
for an empty one.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import hashlib
import importlib
import io
import sys
import time
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

from muster.node.checkpoint.listing import (
    MAX_CHILDREN,
    MAX_CONTENT_BYTES,
    MAX_DEPTH,
    MAX_ENTRIES,
    Children,
    File,
    Files,
    Listing,
    Status,
    StorageError,
    directories_at,
    no_sign,
)
from muster.protocol.checkpoint_names import absolute, step_in_name
from muster.protocol.checkpoints import UNVERIFIED, UNVERIFIED_FOR_NOW

CALL_SECONDS = 20.0  # for one question, the retries of the user's packages included
SETTLE_SECONDS = 30.0  # between two looks that find the same: of an upload under way nothing is visible
_LEFT_OUT_SECONDS = 600.0
_READ_BYTES = 8 * 1024 * 1024
_MAX_POINTER_BYTES = 4096
_MAX_CAUSE_CHARS = 300
_TIMES = ("LastModified", "last_modified", "updated", "mtime", "modified", "created")  # s3fs, adlfs, gcsfs, others
_VERSIONS = ("ETag", "etag", "generation")
_THROTTLED = ("SlowDown", "ServiceUnavailable", "ThrottlingException", "ServerBusy", "TooManyRequests", "429", "503")
_NO_NAMES = frozenset({"", ".", ".."})
_MISADDRESSED = (
    "InvalidBucketName",
    "PermanentRedirect",
    "301",
    "AuthorizationHeaderMalformed",
)  # the last: its region
_REFUSED = ("401", "403", "InvalidToken", "TokenRefreshRequired")
_DENIED = ("Credential", "Authentication", "RefreshError", "Forbidden", "Unauthorized")  # in the names of exceptions
_TIMEOUTS = (TimeoutError, asyncio.TimeoutError)  # one and the same from Python 3.11 on
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss", "obs", "cos")

_Level = Dict[str, Optional[Status]]  # names directly in a directory; None: of another directory


def open_url(url: str) -> Tuple[Any, str]:
    """Open the file system of a URL by the fsspec of this Python. Returns the file system and the path in it."""
    return importlib.import_module("fsspec.core").url_to_fs(url)  # type: ignore[no-any-return]


class Store(Files):
    """The files below one URL, which is opened as `open_url` does. `now` returns monotonic seconds."""

    is_store = True
    settle_seconds = SETTLE_SECONDS

    def __init__(
        self,
        url: str,
        open_file_system: Callable[[str], Tuple[Any, str]] = open_url,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = absolute(url)
        self._open = open_file_system
        self._now = now
        self._opened: Optional[Tuple[Any, str]] = None
        self._levels: Dict[str, Optional[_Level]] = {}
        self._left_out: Dict[str, float] = {}  # names of directories that are not looked into, until when

    def refresh(self) -> None:
        """Discard what is cached of the look before. See Files."""
        self._levels.clear()

    def free_bytes(self, _directory: str) -> Optional[int]:
        """None, since a store does not fill. See Files."""
        return None

    def status(self, path: str) -> Optional[Status]:
        """The state of what is at a path. See Files. A directory's state changes with whatever is directly in it."""
        inner = self._inner(path)
        if inner is None:
            return None
        if inner:
            parent, _, name = inner.rpartition("/")
            entry = (self._level(parent) or {}).get(name)
            if entry is not None:
                return entry
        level = self._level(inner)
        if level is None:
            return None
        text = "".join("%s\0%s\n" % (name, status) for name, status in sorted(level.items()))
        return Status(0, len(level), 0, _number(text))

    def children(
        self, directory: str, is_wanted: Callable[[str], bool], sign: Callable[[], None] = no_sign
    ) -> Children:
        """The names of the directories, and of the wanted files, in a directory. See Files."""
        level = self._level(self._inner(directory) or "")
        if level is None:
            raise FileNotFoundError(errno.ENOENT, "it does not exist", directory)
        sign()
        directories = [name for name, status in level.items() if status is None]
        files = [name for name, status in level.items() if status is not None and is_wanted(name)]
        return Children(directories[:MAX_CHILDREN], files[:MAX_CHILDREN])

    def listing(self, directory: str, sign: Callable[[], None] = no_sign, max_depth: int = MAX_DEPTH) -> Listing:
        """List the files below a directory, with a new request each time. See Files."""
        inner = self._inner(directory) or ""
        files: Dict[str, Status] = {}
        with contextlib.suppress(FileNotFoundError):
            infos = self._ask("find", inner, detail=True)
            files = {name: status for name, status in self._entries(inner, infos.values()) if status is not None}
        sign()
        self._remember(inner, files)
        reached = [name for name in files if name.count("/") < max_depth]
        return Listing(
            directory,
            {name: files[name].file for name in reached[:MAX_ENTRIES]},
            len(reached) > MAX_ENTRIES,
            directories_at(files, max_depth),
        )

    def content(self, path: str, sign: Callable[[], None] = no_sign) -> bytes:
        """The bytes of an object of moderate size. See Files."""
        size = self._file(path).size_bytes
        if size > MAX_CONTENT_BYTES:
            raise ValueError("%s is larger than %d bytes" % (path, MAX_CONTENT_BYTES))
        content = io.BytesIO()
        while content.tell() < size:
            part = self.part(path, content.tell(), _READ_BYTES, sign)
            if not part:
                break
            content.write(part)
        return content.getvalue()

    def part(self, path: str, start: int, length: int, sign: Callable[[], None] = no_sign) -> bytes:
        """At most `length` bytes of an object from `start` on. See Files."""
        end = min(start + min(length, MAX_CONTENT_BYTES), self._file(path).size_bytes)
        data = b""
        if start < end:
            data = bytes(self._ask("cat_file", self._inner(path) or "", start=start, end=end))
        sign()
        return data

    def link(self, path: str) -> Optional[str]:
        """The text of an object that stands for a link (Composer's, which end in `.symlink`); None where there is
        none."""
        try:
            return self.part(path + ".symlink", 0, _MAX_POINTER_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def _file(self, path: str) -> File:
        inner = self._inner(path)
        parent, _, name = (inner or "").rpartition("/")
        level = self._level(parent) if inner else None
        if level is None or name not in level:
            raise FileNotFoundError(errno.ENOENT, "it does not exist", path)
        status = level[name]
        if status is None:
            raise IsADirectoryError(errno.EISDIR, "it is a directory", path)
        return status.file

    def _inner(self, path: str) -> Optional[str]:
        """The path relative to the URL; None for a path outside of it, where nothing is looked for."""
        if path == self._url:
            return ""
        return path[len(self._url) + 1 :] if path.startswith(self._url + "/") else None

    def _level(self, inner: str) -> Optional[_Level]:
        """The entries directly in a directory; None where there is no such directory."""
        if inner not in self._levels:
            parent, _, name = inner.rpartition("/")
            above = self._level(parent) if inner else {name: None}
            if above is None or name not in above or above[name] is not None:
                return None
            self._levels[inner] = self._listed(inner)
        return self._levels[inner]

    def _listed(self, inner: str) -> Optional[_Level]:
        top = inner.partition("/")[0]
        if self._now() < self._left_out.get(top, 0.0):
            raise PermissionError(errno.EACCES, "it took too long to list", inner)
        try:
            entries = self._ask("ls", inner, detail=True)
        except FileNotFoundError:
            if not inner:
                self._find_bucket()
            return None
        except StorageError as error:
            # Whatever else lies there, in any number, must not keep those with a step in their names from being seen.
            if inner and step_in_name(top) is None and isinstance(error.__cause__, _TIMEOUTS):
                self._left_out[top] = self._now() + _LEFT_OUT_SECONDS
                raise PermissionError(errno.EACCES, "it took too long to list", inner) from error
            raise
        return {name: status for name, status in self._entries(inner, entries) if "/" not in name}

    def _entries(self, inner: str, infos: Any) -> Iterator[Tuple[str, Optional[Status]]]:
        """The names relative to a directory, each with its state; None as state of a directory.

        A directory takes the place of a file of the same name.
        """
        prefix = self._path(inner) + "/"
        directories = []
        for info in infos:
            name = str(info["name"])
            if not name.startswith(prefix):
                continue
            relative = name[len(prefix) :]
            is_directory = info.get("type") == "directory" or relative.endswith("/")
            relative = relative.rstrip("/")
            if not _NO_NAMES.isdisjoint(relative.split("/")):  # a store takes any; as paths they lead elsewhere
                continue
            if is_directory:
                directories.append(relative)
            else:
                yield relative, _status(info)
        yield from ((name, None) for name in directories)

    def _remember(self, inner: str, files: Mapping[str, Status]) -> None:
        """Cache the levels of a directory, as they were found now."""
        for directory in [
            directory
            for directory in self._levels
            if directory == inner or directory.startswith(inner + "/" if inner else "")
        ]:
            del self._levels[directory]
        levels: Dict[str, _Level] = {inner: {}}
        for relative, status in files.items():
            place = inner
            *parents, name = relative.split("/")
            for parent in parents:
                levels[place][parent] = None
                place = "%s/%s" % (place, parent) if place else parent
                levels.setdefault(place, {})
            levels[place].setdefault(name, status)
        self._levels.update(levels)

    def _path(self, inner: str) -> str:
        root = self._file_system()[1]
        return "%s/%s" % (root, inner) if inner else root

    def _file_system(self) -> Tuple[Any, str]:
        if self._opened is None:
            try:
                file_system, path = self._open(self._url)
            except Exception as error:
                raise failure(self._url, error) from error
            self._opened = file_system, str(path).rstrip("/")
        return self._opened

    def _ask(self, method: str, inner: str, **arguments: Any) -> Any:
        """The answer of the store to a method of its file system, without what the user's packages have cached.

        Raises:
            FileNotFoundError: there is no such object.
            StorageError: the store gave no answer.
        """
        file_system, path = self._file_system()[0], self._path(inner)
        try:
            return _called(file_system, method, path, arguments)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise failure(self._url, error) from error

    def _find_bucket(self) -> None:
        """Raise StorageError where the bucket does not exist. The packages report that like a bucket that is still
        empty."""
        file_system, path = self._file_system()
        bucket = path.partition("/")[0]
        if self._url.partition("://")[0] not in _BUCKETS:
            return
        try:
            _called(file_system, "ls", bucket, {"detail": False})
        except FileNotFoundError as error:
            text = "%s: there is no bucket %s. Make it, or correct its name in spec.checkpoint"
            raise StorageError(UNVERIFIED, text % (self._url, bucket)) from error
        except Exception:  # noqa: BLE001 - it may not be listed as a whole: then it is unknown
            return


def _called(file_system: Any, method: str, path: str, arguments: Mapping[str, Any]) -> Any:
    file_system.invalidate_cache()
    own = getattr(file_system, "_" + method, None)
    if file_system.async_impl and own is not None:  # these can be given up in time; others are killed with this process
        wait = importlib.import_module("fsspec.asyn").sync
        return wait(file_system.loop, own, path, timeout=CALL_SECONDS, **arguments)
    return getattr(file_system, method)(path, **arguments)


def failure(url: str, error: BaseException) -> StorageError:
    """The StorageError for an exception of the user's packages: its message says where, why, and what to repair."""
    code = _code(error)
    cause = ": ".join(filter(None, (code or type(error).__name__, str(error)[:_MAX_CAUSE_CHARS])))
    scheme = url.partition("://")[0]
    kind = type(error).__name__
    if isinstance(error, ImportError):
        if (error.name or "").partition(".")[0] == "fsspec":
            problem = "this image's Python (%s) has no fsspec" % sys.executable
        else:
            problem = "this image's Python (%s) cannot open %s:// (%s)" % (sys.executable, scheme, cause)
        remedy = (
            "Install fsspec and its package for that scheme there (s3fs, gcsfs, adlfs), or name no URL in "
            "spec.checkpoint: then the program has to find its checkpoint by itself"
        )
    elif isinstance(error, ValueError) and "rotocol not known" in str(error):
        problem = "fsspec in this image knows no scheme %s://" % scheme
        remedy = "Correct it in spec.checkpoint, or install the package that brings it"
    elif isinstance(error, _TIMEOUTS):
        return StorageError(UNVERIFIED_FOR_NOW, "%s: no answer within %g s; it is asked again" % (url, CALL_SECONDS))
    elif code in _THROTTLED or getattr(error, "errno", None) == errno.EBUSY:
        return StorageError(UNVERIFIED_FOR_NOW, "%s: the store is throttling (%s); it is asked again" % (url, cause))
    elif isinstance(error, PermissionError) or _is_refused(error, code) or any(word in kind for word in _DENIED):
        problem = "the store refuses the worker container's credentials, or there are none (%s)" % cause
        remedy = "Give it some that may list and read there, and that are not expired"
    elif code in _MISADDRESSED or kind == "ParamValidationError":
        problem = "the store says that it is addressed wrongly (%s)" % cause
        remedy = "Correct the name in spec.checkpoint, or endpoint and region in the worker container"
    else:
        return StorageError(
            UNVERIFIED_FOR_NOW, "%s: it cannot be listed or read (%s); it is asked again" % (url, cause)
        )
    return StorageError(UNVERIFIED, "%s: %s. %s" % (url, problem, remedy))


def _code(error: Optional[BaseException]) -> str:
    """The error code of the store, as the packages of S3, Google and Azure keep it; "" = not known."""
    while error is not None:
        response = getattr(error, "response", None)
        details = response.get("Error") if isinstance(response, dict) else None
        for code in (
            details.get("Code") if isinstance(details, dict) else None,
            getattr(error, "error_code", None),
            getattr(error, "code", None),
            getattr(error, "status_code", None),
            getattr(error, "status", None),
        ):
            if isinstance(code, (str, int)) and code:
                return str(code)
        error = error.__cause__
    return ""


def _is_refused(error: BaseException, code: str) -> bool:
    """Whether the store denies access, by a code of S3 or by the status of HTTP."""
    response = getattr(error.__cause__, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    return code in _REFUSED or status in (401, 403)


def _status(info: Mapping[str, Any]) -> Status:
    version = next((str(info[key]) for key in _VERSIONS if info.get(key)), "")
    moment = next((info[key] for key in _TIMES if info.get(key) is not None), None)
    return Status(0, int(info.get("size") or 0), _nanoseconds(moment), _number(version) if version else 0)


def _number(text: str) -> int:
    return int(hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:15], 16)


def _nanoseconds(moment: Any) -> int:
    """The nanoseconds since 1970 of a time in any package's form; 0 = the package gives none."""
    if isinstance(moment, str):
        try:
            moment = dt.datetime.fromisoformat(moment.replace("Z", "+00:00"))
        except ValueError:
            return 0
    if isinstance(moment, dt.datetime):
        moment = moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
        seconds: float = moment.replace(microsecond=0).timestamp()
        return int(seconds) * 1_000_000_000 + int(moment.microsecond) * 1000
    return int(float(moment) * 1_000_000_000) if isinstance(moment, (int, float)) else 0
