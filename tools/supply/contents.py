"""Reads out of an image's archive what is installed in it, layer by layer, as a container engine would unpack it.

Only the few files that name packages and licences are kept, so that a gigabyte takes seconds and no disk.
"""

from __future__ import annotations

import json
import posixpath
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path

from debian.deb822 import Deb822

from imagebuild.archive import blob_path, digest_in
from supply import SupplyError

# An image without dpkg states what was linked into its programs as distroless images do, a file for each package.
_STATUS = r"var/lib/dpkg/status(?:\.d/[^/]+)?"
_RELEASE = "usr/lib/os-release"
_METADATA = r"(?:\S*/)?[^/]+\.(?:dist-info/METADATA|egg-info/PKG-INFO|egg-info)"
_WANTED = re.compile(rf"{_STATUS}|{_RELEASE}|usr/share/doc/[^/]+(?:/copyright)?|{_METADATA}")
_WHITEOUT = ".wh."
_OPAQUE = ".wh..wh..opq"


@dataclass(frozen=True)
class Link:
    """A symbolic link in an image."""

    target: str


Files = dict[str, bytes | Link]


@dataclass(frozen=True)
class Contents:
    """What an image's archive holds.

    Attributes:
        digest: of the image's manifest, as a registry names it.
        base: digest of the lowest layer, which is the whole base where there is one.
        files: those that name packages and licences, by path without the leading slash.
    """

    digest: str
    base: str
    files: Files

    @property
    def release(self) -> dict[str, str]:
        """/etc/os-release; empty where the image has no system."""
        lines = _text(self.files.get(_RELEASE, b"")).splitlines()
        return {key: value.strip('"') for key, equals, value in (line.partition("=") for line in lines) if equals}

    def packages(self) -> Iterator[Deb822]:
        """Each Debian package that dpkg calls installed."""
        for path in sorted(path for path in self.files if re.fullmatch(_STATUS, path)):
            for stanza in Deb822.iter_paragraphs(_text(self.files[path])):
                if stanza["Status"].endswith(" installed"):
                    yield stanza

    def copyright_of(self, package: str) -> str:
        """Debian's copyright file of a package; empty where the image has none."""
        folder = f"usr/share/doc/{package}"
        return _text(self._follow(posixpath.join(self._resolve(folder), "copyright")))

    def distributions(self) -> Iterator[tuple[str, Message]]:
        """Path and metadata of each Python distribution."""
        for path, content in sorted(self.files.items()):
            if re.fullmatch(_METADATA, path) and isinstance(content, bytes):
                yield path, Parser().parsestr(_text(content), headersonly=True)

    def _resolve(self, path: str) -> str:
        for _ in range(8):  # a circle of links ends here, as a kernel's patience does
            content = self.files.get(path)
            if not isinstance(content, Link):
                break
            path = posixpath.normpath(posixpath.join(posixpath.dirname(path), content.target)).lstrip("/")
        return path

    def _follow(self, path: str) -> bytes:
        content = self.files.get(self._resolve(path), b"")
        return content if isinstance(content, bytes) else b""


def read_image(archive: Path) -> Contents:
    """Read an OCI archive, as imagebuild writes it."""
    files: Files = {}
    with _opened(archive) as outer:
        digest = digest_in(outer)
        layers = [layer["digest"] for layer in json.load(_open(outer, blob_path(digest)))["layers"]]
        for layer in layers:
            with tarfile.open(fileobj=_open(outer, blob_path(layer))) as content:
                _apply_layer(files, content)
    return Contents(digest, layers[0], files)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(archive) as outer:
            yield outer
    except (KeyError, IndexError, ValueError, tarfile.TarError) as error:
        raise SupplyError(f"{archive} is no OCI archive of one image: build it anew by `make images`") from error


def _apply_layer(files: Files, layer: tarfile.TarFile) -> None:
    """Whiteouts remove what lower layers have, so they come first."""
    added: Files = {}
    for member in layer:
        path = posixpath.normpath(member.name)
        folder, name = posixpath.split(path)
        if name == _OPAQUE:
            _remove(files, folder, itself=False)
        elif name.startswith(_WHITEOUT):
            _remove(files, posixpath.join(folder, name.removeprefix(_WHITEOUT)), itself=True)
        elif not member.isdir():
            _remove(files, path, itself=True)  # a file may take the place of a folder
            if _WANTED.fullmatch(path):
                added[path] = Link(member.linkname) if member.issym() else _open(layer, member).read()
    files.update(added)


def _remove(files: Files, path: str, *, itself: bool) -> None:
    for found in [each for each in files if each.startswith(f"{path}/") or (itself and each == path)]:
        del files[found]


def _open(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> tarfile.ExFileObject:
    file = archive.extractfile(member)
    if file is None:
        raise ValueError(f"{member} is no file")
    assert isinstance(file, tarfile.ExFileObject)
    return file


def _text(content: bytes | Link) -> str:
    return content.decode(errors="replace") if isinstance(content, bytes) else ""
