"""An object store in memory, as the packages of fsspec show one: names, sizes, the store's own times, and what tells
versions apart."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from muster.node.checkpoint.find import Finder, Found, ScanOptions
from muster.node.checkpoint.store import Store

URL = "s3://bucket/run-7"
START = dt.datetime(2026, 11, 22, 12, 0, tzinfo=dt.UTC)


def of_s3(name: str, content: bytes, written: dt.datetime, version: int) -> dict[str, Any]:
    """As s3fs 2026.9.0 told it of versitygw 1.8.0."""
    return {
        "Key": name,
        "LastModified": written,
        "ETag": f'"{version:032x}"',
        "Size": len(content),
        "StorageClass": "STANDARD",
        "type": "file",
        "size": len(content),
        "name": name,
    }


def of_gcs(name: str, content: bytes, written: dt.datetime, version: int) -> dict[str, Any]:
    """The fields that gcsfs documents: times as text in `updated`, and a generation."""
    updated = written.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "name": name,
        "size": len(content),
        "type": "file",
        "updated": updated,
        "mtime": written,
        "generation": str(version),
    }


def of_azure(name: str, content: bytes, written: dt.datetime, version: int) -> dict[str, Any]:
    """The fields that adlfs documents."""
    return {"name": name, "size": len(content), "type": "file", "last_modified": written, "etag": f"0x8DC{version:X}"}


class Objects:
    """What fsspec's file systems have of it that is used here; each question is counted.

    Attributes:
        asked: method and path of each question.
        fails: called before each answer; may raise.
    """

    async_impl = False
    bucket = "bucket"

    def __init__(self, describe: Callable[..., dict[str, Any]] = of_s3) -> None:
        self.contents: dict[str, bytes] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self.asked: list[tuple[str, str]] = []
        self.fails: Callable[[str, str], None] = lambda method, path: None
        self._describe = describe
        self._writes = 0

    def put(self, path: str, content: bytes, seconds: float | None = None) -> None:
        """Write an object below the bucket whole, a tenth of a second after the one before."""
        self._writes += 1
        name = f"{self.bucket}/{path}"
        written = START + dt.timedelta(seconds=self._writes / 10 if seconds is None else seconds)
        self.contents[name] = content
        self.infos[name] = self._describe(name, content, written, self._writes)

    def opened(self, url: str) -> tuple[Objects, str]:
        return self, url.partition("://")[2]

    def invalidate_cache(self) -> None:
        pass

    def ls(self, path: str, detail: bool = True) -> list[Any]:
        self._ask("ls", path)
        inner = [name for name in self.infos if name.startswith(path + "/")]
        if not inner and path != self.bucket:
            raise FileNotFoundError(path)
        directories = {name[: name.index("/", len(path) + 1)] for name in inner if "/" in name[len(path) + 1 :]}
        files = [self.infos[name] for name in inner if "/" not in name[len(path) + 1 :]]
        return [{"name": name, "size": 0, "type": "directory"} for name in sorted(directories)] + files

    def find(self, path: str, detail: bool = True) -> dict[str, Any]:
        self._ask("find", path)
        return {name: info for name, info in self.infos.items() if name.startswith(path + "/")}

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        self._ask("cat_file", path)
        if path not in self.contents:
            raise FileNotFoundError(path)
        if start >= len(self.contents[path]):
            raise OSError(22, "The requested range is not satisfiable")
        return self.contents[path][start:end]

    def _ask(self, method: str, path: str) -> None:
        self.asked.append((method, path))
        self.fails(method, path)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def finder_of(objects: Objects, url: str = URL, clock: Clock | None = None) -> Finder:
    clock = clock or Clock()
    store = Store(url, objects.opened, now=clock)
    return Finder(url, now=clock, files=store, pause=clock.pause)


def last(finder: Finder, how: ScanOptions | None = None) -> Found:
    return list(finder.scan(how or ScanOptions()))[-1]


def found(finder: Finder, how: ScanOptions | None = None) -> list[tuple[int, str]]:
    return [(one.step, one.path) for one in last(finder, how).checkpoints]
