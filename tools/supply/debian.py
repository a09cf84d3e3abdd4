"""`python -m supply.debian lock` writes requirements/debian.lock: each .deb that the images are made of, by SHA-256.

Only a release insists on it. Debian's mirrors drop a version at each point release, so that a lock which every build
insisted on would soon stop all of them; who makes a release renews it first, and sees in the difference what is new.
The lock is part of the cache's key for the base (imagebuild/fetch.py): a renewed lock makes images anew, from the
mirror as it is then.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from debian.deb822 import Deb822

from imagebuild import fetch, plan
from imagebuild.__main__ import require_tools
from imagebuild.report import BuildError
from supply import SupplyError

RENEW = "Renew it by `make lock`, read the difference, and commit it."
_SOURCE = re.compile(r"(?P<name>\S+)(?: \((?P<version>\S+)\))?")


@dataclass(frozen=True, order=True)
class Deb:
    """One .deb: the fields of a line of the lock."""

    package: str
    version: str
    architecture: str
    sha256: str
    source: str
    source_version: str


def source_of(stanza: Deb822) -> tuple[str, str]:
    """Name and version of the source that a package was built from; both are left out where they are its own."""
    found = _SOURCE.fullmatch(stanza.get("Source", stanza["Package"]))
    if found is None:
        raise SupplyError(f"package {stanza['Package']}: Source: {stanza['Source']!r} is not `name (version)`")
    return found["name"], found["version"] or stanza["Version"]


def debs_of(images: Iterable[str]) -> set[Deb]:
    """Each .deb of these images: those of the base by the mirror's signed index, the others by the files themselves."""
    with (fetch.base_root() / "Packages").open() as index:
        found = {_deb(stanza, stanza["SHA256"]) for stanza in Deb822.iter_paragraphs(index)}
    packages = {package for image in plan.IMAGES if image.name in images for package in image.packages}
    for package in sorted(packages):
        found |= {read_deb(path) for path in fetch.debian_packages(package).glob("*.deb")}
    return found


def read_deb(path: Path) -> Deb:
    """What the file says of itself, and its digest."""
    control = subprocess.run(["dpkg-deb", "--field", path], capture_output=True, text=True, check=True).stdout
    with path.open("rb") as file:
        return _deb(Deb822(control), hashlib.file_digest(file, "sha256").hexdigest())


def _deb(stanza: Deb822, sha256: str) -> Deb:
    return Deb(stanza["Package"], stanza["Version"], stanza["Architecture"], sha256, *source_of(stanza))


def read_lock() -> set[Deb]:
    """The lines of requirements/debian.lock."""
    lines = (line for line in fetch.DEBIAN_LOCK.read_text().splitlines() if not line.startswith("#"))
    try:
        return {Deb(*line.split()) for line in lines}
    except TypeError as error:
        raise SupplyError(f"requirements/debian.lock: a line has not {len(fields(Deb))} words. {RENEW}") from error


def write_lock() -> None:
    """Lock what the mirror has now: all is fetched anew, past the cache."""
    before = os.environ.get("MUSTER_CACHE")
    with tempfile.TemporaryDirectory(prefix="muster-lock-") as scratch:
        os.environ["MUSTER_CACHE"] = scratch
        try:
            debs = debs_of(image.name for image in plan.IMAGES if not image.optional)
        finally:
            del os.environ["MUSTER_CACHE"]
            if before is not None:
                os.environ["MUSTER_CACHE"] = before
    lines = ["# Renewed by `make lock`: " + ", ".join(field.name for field in fields(Deb))]
    lines += [" ".join(astuple(deb)) for deb in sorted(debs)]
    fetch.DEBIAN_LOCK.write_text("\n".join(lines) + "\n")


def check(images: Collection[str]) -> None:
    """Raise SupplyError unless the lock has each .deb that these images are made of."""
    wrong = differences(debs_of(images), read_lock())
    if wrong:
        raise SupplyError(
            "\n".join(["requirements/debian.lock differs from what the images are made of.", *wrong, RENEW])
        )


def differences(found: Iterable[Deb], locked: Iterable[Deb]) -> list[str]:
    """A sentence for each .deb that the lock does not have so."""
    named = {(deb.package, deb.architecture): deb for deb in locked}
    wrong = []
    for deb in sorted(found):
        lock = named.get((deb.package, deb.architecture))
        if lock is None:
            wrong.append(f"{deb.package}: the mirror has {deb.version}, the lock has no such package.")
        elif lock.version != deb.version:
            wrong.append(f"{deb.package}: the mirror has {deb.version}, the lock {lock.version}.")
        elif lock != deb:
            wrong.append(
                f"{deb.package} {deb.version}: the mirror has {deb.sha256}, the lock {lock.sha256}. "
                "One version never has two files: find out which of them is Debian's before you renew the lock."
            )
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="supply.debian", description="The lock of Debian packages.")
    parser.add_argument("command", choices=["lock"])
    parser.parse_args()
    try:
        require_tools()
        write_lock()
    except (SupplyError, BuildError, OSError) as error:
        print(f"supply.debian: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
