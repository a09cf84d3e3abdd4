"""Writes an image's SBOM in SPDX 2.3 (JSON): every Debian package and Python distribution in it, and Muster itself.

spdx-tools writes it and refuses what the specification does not allow. What is inside is read from the image itself
and not from what its build was given, so that the SBOM also names what came in by accident.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from urllib.parse import quote

from debian.deb822 import Deb822
from license_expression import LicenseExpression, get_spdx_licensing
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.writer.json.json_writer import write_document_to_file

from supply import debian, licences
from supply.contents import Contents

_DOCUMENT = "SPDXRef-DOCUMENT"
_IMAGE = "SPDXRef-Image"
_DEBIAN_FOLDER = "usr/lib/python3/"
_UNKNOWN = SpdxNoAssertion()


def write(contents: Contents, name: str, version: str, created_seconds: int, out: Path) -> None:
    """Write the SBOM of an image to the file `out`, as created at that time since the epoch.

    Equal arguments give equal bytes.
    """
    base = _base(contents)
    inside = [_muster(version), *_debian_packages(contents), *_distributions(contents)]
    relations = [Relationship(_DOCUMENT, RelationshipType.DESCRIBES, _IMAGE)]
    relations += [Relationship(_IMAGE, RelationshipType.DESCENDANT_OF, each.spdx_id) for each in base]
    relations += [Relationship(_IMAGE, RelationshipType.CONTAINS, each.spdx_id) for each in inside]
    information = CreationInfo(
        "SPDX-2.3",
        _DOCUMENT,
        f"{name}-{version}",
        f"https://muster.invalid/spdx/{name}/{version}/{contents.digest.partition(':')[2]}",
        [Actor(ActorType.TOOL, f"muster-supply-{version}")],
        datetime.fromtimestamp(created_seconds, UTC).replace(tzinfo=None),
    )
    image = Package(
        _IMAGE,
        name,
        _UNKNOWN,
        version=version,
        files_analyzed=False,
        checksums=_checksums(contents.digest.partition(":")[2]),
        primary_package_purpose=PackagePurpose.CONTAINER,
        comment="The checksum is the digest of the image's manifest.",
    )
    document = Document(information, [image, *base, *inside], relationships=relations)
    write_document_to_file(document, str(out))


def _base(contents: Contents) -> list[Package]:
    """The Debian that the image is built on; none for an image from scratch."""
    release = contents.release
    if not release:
        return []
    return [
        Package(
            "SPDXRef-Base",
            release["ID"],
            _UNKNOWN,
            version=release.get("DEBIAN_VERSION_FULL", release["VERSION_ID"]),
            files_analyzed=False,
            checksums=_checksums(contents.base.partition(":")[2]),
            primary_package_purpose=PackagePurpose.OPERATING_SYSTEM,
            comment="The checksum is the digest of the image's lowest layer.",
        )
    ]


def _muster(version: str) -> Package:
    return Package(
        "SPDXRef-Muster",
        "muster",
        _UNKNOWN,
        version=version,
        files_analyzed=False,
        license_declared=_expression("Apache-2.0"),
        external_references=_purl(f"pkg:generic/muster@{quote(version, safe='')}"),
        primary_package_purpose=PackagePurpose.APPLICATION,
    )


def _debian_packages(contents: Contents) -> Iterator[Package]:
    sha256 = {(deb.package, deb.version, deb.architecture): deb.sha256 for deb in debian.read_lock()}
    distribution = contents.release.get("VERSION_CODENAME", "")
    for stanza in contents.packages():
        name, version, architecture = stanza["Package"], stanza["Version"], stanza["Architecture"]
        named = licences.debian_names(contents.copyright_of(name))
        query = f"arch={architecture}" + (f"&distro={distribution}" if distribution else "")
        yield Package(
            _identifier("Debian", name, version, architecture),
            name,
            _UNKNOWN,
            version=version,
            supplier=_maintainer(stanza),
            files_analyzed=False,
            checksums=_checksums(sha256.get((name, version, architecture), "")),
            source_info="built from {} {}".format(*debian.source_of(stanza)),
            license_declared=_expression(licences.from_debian(named)),
            license_comment=f"Debian's copyright file names: {'; '.join(named)}." if named else None,
            external_references=_purl(f"pkg:deb/debian/{quote(name)}@{quote(version, safe='')}?{query}"),
        )


def _maintainer(stanza: Deb822) -> Actor | None:
    found = re.fullmatch(r"(.+?) <([^<>]+)>", stanza.get("Maintainer", ""))
    return Actor(ActorType.ORGANIZATION, found[1], found[2]) if found else None


def _distributions(contents: Contents) -> Iterator[Package]:
    found: dict[tuple[str, str], tuple[str, Message]] = {}
    for path, metadata in contents.distributions():
        found.setdefault((metadata["Name"], metadata["Version"]), (path, metadata))
    for (name, version), (path, metadata) in sorted(found.items()):
        # What Debian has built is judged by Debian's version; the index's advisories would be wrong about it.
        is_debians = path.startswith(_DEBIAN_FOLDER)
        project = re.sub(r"[-_.]+", "-", name).lower()
        yield Package(
            _identifier("Python", name, version),
            name,
            _UNKNOWN,
            version=version,
            files_analyzed=False,
            source_info=f"found at /{path}" + (", of a Debian package" if is_debians else ""),
            license_declared=_expression(licences.from_metadata(metadata)),
            external_references=[] if is_debians else _purl(f"pkg:pypi/{project}@{quote(version, safe='')}"),
        )


def _identifier(kind: str, *words: str) -> str:
    """An SPDX identifier may hold letters, digits, dots and hyphens; another character becomes its number."""
    name = "-".join(["SPDXRef", kind, *words])
    return re.sub(r"[^A-Za-z0-9.-]", lambda found: f"-{ord(found[0])}-", name)


def _expression(text: str) -> LicenseExpression | SpdxNoAssertion:
    return get_spdx_licensing().parse(text) if text else _UNKNOWN


def _checksums(sha256: str) -> list[Checksum]:
    return [Checksum(ChecksumAlgorithm.SHA256, sha256)] if sha256 else []


def _purl(locator: str) -> list[ExternalPackageRef]:
    return [ExternalPackageRef(ExternalPackageRefCategory.PACKAGE_MANAGER, "purl", locator)]
