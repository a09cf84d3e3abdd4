"""Lists the sources that an image's licences ask to offer, and fetches them from Debian's archive.

These are the sources of each Debian package that is, even in part, under a copyleft licence or states none that a
program can read, and those that Debian notes as built in for that reason (Built-Using).
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from debian.deb822 import Deb822

from imagebuild import fetch
from imagebuild.report import BuildError, run_quietly
from supply import SupplyError, debian, licences
from supply.contents import Contents

_FILE = re.compile(r"^'\S+' (?P<name>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)
_BUILT_IN = re.compile(r"(?P<name>\S+) \(= (?P<version>\S+)\)")

_OFFER = """\
The images of this release hold Debian packages under licences (GPL, LGPL and the like) that oblige everyone who hands
the images on to offer the complete source. sources.json names each source, its files with their SHA-256, and the images
and packages that were built from it. The copyright files are in the images, in /usr/share/doc.
"""
_FILES_HERE = "The sources lie beside this file: publish them where you publish the images.\n"
_REMEDY = (
    "Without them the images must not be handed on. If the mirror dropped them, renew requirements/debian.lock by "
    "`make lock` and make the release anew; if it has only a part of Debian, take another one."
)
_FILES_ELSEWHERE = """\
The sources are not here. `make release SOURCES=1` fetches them from Debian's archive; snapshot.debian.org keeps them.
"""


@dataclass
class Offer:
    """Why a source is offered: images and packages that were built from it, and licences of those packages."""

    images: set[str] = field(default_factory=set)
    packages: set[str] = field(default_factory=set)
    licences: set[str] = field(default_factory=set)


def write(images: Mapping[str, Contents], folder: Path, *, with_files: bool) -> None:
    """Write `sources.json` and a README into the folder for images by name; `with_files` fetches the sources too."""
    offers = find_offers(images)
    folder.mkdir(parents=True, exist_ok=True)
    listed, missing = [], []
    with tempfile.TemporaryDirectory(prefix="muster-sources-") as scratch:
        apt = fetch.apt_for_base(Path(scratch), Path(scratch) / "cache", kind="deb-src")
        run_quietly([*apt, "update"])
        for (name, version), offer in sorted(offers.items()):
            try:
                files = _files(apt, f"{name}={version}", folder if with_files else None)
            except BuildError as error:
                missing.append(f"{name} {version}: {_cause(str(error))}")
                continue
            about = {field: sorted(found) for field, found in vars(offer).items()}
            listed.append({"source": name, "version": version, **about, "files": files})
    if missing:
        raise SupplyError("\n".join([f"{len(missing)} of {len(offers)} sources cannot be had:", *missing, _REMEDY]))
    (folder / "sources.json").write_text(json.dumps(listed, indent=2) + "\n")
    (folder / "README").write_text(_OFFER + (_FILES_HERE if with_files else _FILES_ELSEWHERE))


def _cause(said: str) -> str:
    """The line that names what could not be fetched, after which apt-get says that something could not; else the last
    one."""
    lines = said.splitlines()
    return next((line for line in reversed(lines) if "://" in line), lines[-1])


def find_offers(images: Mapping[str, Contents]) -> dict[tuple[str, str], Offer]:
    """Each source to offer, by name and version."""
    offers: dict[tuple[str, str], Offer] = {}
    for image, contents in images.items():
        for stanza in contents.packages():
            copyright_file = contents.copyright_of(stanza["Package"])
            if licences.is_copyleft(copyright_file):
                for source in (debian.source_of(stanza), *_built_in(stanza)):
                    offer = offers.setdefault(source, Offer())
                    offer.images.add(image)
                    offer.packages.add(stanza["Package"])
                    offer.licences.update(licences.debian_names(copyright_file))
    return offers


def _built_in(stanza: Deb822) -> list[tuple[str, str]]:
    return [(found["name"], found["version"]) for found in _BUILT_IN.finditer(stanza.get("Built-Using", ""))]


def _files(apt: list[str], source: str, folder: Path | None) -> list[dict[str, str | int]]:
    """The files of a source package as the mirror's signed index lists them; fetched where a folder is given."""
    asked = [*apt, "source", "--only-source"]
    listed = run_quietly([*asked, "--print-uris", source])
    if folder:
        # apt compares each file with that index, and leaves a whole one alone.
        run_quietly([*asked, "--download-only", source], folder=folder)
    files: list[dict[str, str | int]] = [
        {"name": found["name"], "sha256": found["sha256"], "size_bytes": int(found["size"])}
        for found in _FILE.finditer(listed)
    ]
    if not files:
        raise BuildError(f"apt-get names no file with a SHA-256: {listed!r}")
    return files
