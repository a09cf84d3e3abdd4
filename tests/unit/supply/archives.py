"""Archives of small images, made of layers that a test writes down."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuild.archive import pack


@dataclass(frozen=True)
class To:
    """A link to another path, symbolic unless it is a hard one."""

    path: str
    hard: bool = False


Layer = Mapping[str, str | To]


def write_image(folder: Path, *layers: Layer) -> Path:
    """Write `image.tar` into a folder: an OCI archive of these layers, from the lowest up."""
    exported = folder / "exported"
    exported.mkdir(parents=True)
    blobs = [b"{}", *(_pack_layer(layer) for layer in layers)]
    digests = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    for digest, blob in zip(digests, blobs, strict=True):
        (exported / digest).write_bytes(blob)
    named = [{"digest": f"sha256:{digest}"} for digest in digests]
    media_type = "application/vnd.oci.image.manifest.v1+json"
    (exported / "manifest.json").write_text(
        json.dumps({"schemaVersion": 2, "mediaType": media_type, "config": named[0], "layers": named[1:]})
    )
    pack(exported, ["muster.invalid/muster/image:dev"], folder / "image.tar")
    return folder / "image.tar"


def _pack_layer(layer: Layer) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for path, content in layer.items():
            member = tarfile.TarInfo(path)
            if isinstance(content, To):
                member.type = tarfile.LNKTYPE if content.hard else tarfile.SYMTYPE
                member.linkname = content.path
                archive.addfile(member)
            else:
                member.size = len(content.encode())
                archive.addfile(member, io.BytesIO(content.encode()))
    return written.getvalue()


def stanza(package: str, version: str, *others: str) -> str:
    """An installed package in dpkg's status."""
    lines = [f"Package: {package}", "Status: install ok installed", "Architecture: amd64", f"Version: {version}"]
    return "\n".join([*lines, *others, "", ""])


def copyright_of(*licences: str) -> str:
    """A machine-readable copyright file that names these licences."""
    form = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
    parts = [f"\nFiles: {number}/*\nCopyright: A\nLicense: {name}\n" for number, name in enumerate(licences)]
    return form + "".join(parts)
