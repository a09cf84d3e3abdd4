"""Packs an exported image into one tar that containerd, podman and Docker import under the names we give it.

Archives of other things are packed here as well, so that equal files give equal bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORM = "2"
"""Raised when the same image gets another archive, so that no older one is taken from the cache."""
_OCI_LAYOUT = {"imageLayoutVersion": "1.0.0"}


def blob_path(digest: str) -> str:
    """Where an archive has what this digest is of."""
    return "blobs/" + digest.replace(":", "/")


def _encode(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def index_files(manifest: bytes, names: Sequence[str]) -> dict[str, bytes]:
    """Return the files of the archive, other than configuration and layers, for the image with this OCI manifest.

    `index.json` is what containerd and podman read, `manifest.json` is Docker's; both point to the same blobs. Beside
    the names, which have tags, containerd gets REPOSITORY@DIGEST: it finds a loaded image by the name alone.
    """
    digest = "sha256:" + hashlib.sha256(manifest).hexdigest()
    content = json.loads(manifest)
    repository = names[0].rpartition(":")[0]
    annotations = [
        {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
        for name in names
    ]
    annotations.append({"io.containerd.image.name": f"{repository}@{digest}"})
    entry = {"mediaType": content["mediaType"], "digest": digest, "size": len(manifest)}
    entries = [{**entry, "annotations": each} for each in annotations]
    docker = {
        "Config": blob_path(content["config"]["digest"]),
        "RepoTags": list(names),
        "Layers": [blob_path(layer["digest"]) for layer in content["layers"]],
    }
    return {
        "oci-layout": _encode(_OCI_LAYOUT),
        "index.json": _encode({"schemaVersion": 2, "manifests": entries}),
        "manifest.json": _encode([docker]),
        blob_path(digest): manifest,
    }


def pack(exported: Path, names: Sequence[str], output: Path) -> None:
    """Write the archive from a folder that holds `manifest.json` and one file per blob, named by its SHA-256.

    Equal images under equal names give equal bytes.
    """
    manifest = (exported / "manifest.json").read_bytes()
    content = json.loads(manifest)
    # A layer may occur twice in an image, for example an empty one.
    digests = sorted({part["digest"] for part in (content["config"], *content["layers"])})
    with tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
        for name, data in index_files(manifest, names).items():
            archive.addfile(entry_of(name, len(data)), io.BytesIO(data))
        for digest in digests:
            blob = exported / digest.partition(":")[2]
            with blob.open("rb") as file:
                archive.addfile(entry_of(blob_path(digest), blob.stat().st_size), file)


def read_digest(archive: Path) -> str:
    """Return the digest of the manifest in an archive of ours: the one that a registry shows after a push."""
    with tarfile.open(archive) as files:
        return digest_in(files)


def digest_in(archive: tarfile.TarFile) -> str:
    """Return the digest of the one manifest that an archive's index names, for several image names.

    Raises:
        ValueError: it names none or several, or has no such file.
    """
    index = archive.extractfile("index.json")
    digests = {entry["digest"] for entry in json.load(index)["manifests"]} if index else set()
    if len(digests) != 1:
        raise ValueError(f"its index names {len(digests)} images, not one")
    return str(digests.pop())


def entry_of(name: str, size_bytes: int, mode: int = 0o644) -> tarfile.TarInfo:
    """Return the header of a file in an archive, without times and owners."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size_bytes, mode
    return entry


def tarball(members: Mapping[str, tuple[bytes, int]], compress_level: int = 9) -> bytes:
    """Return a .tar.gz of these files, each with its content and mode, in this order."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, (content, mode) in members.items():
            archive.addfile(entry_of(name, len(content), mode), io.BytesIO(content))
    return gzip.compress(packed.getvalue(), compresslevel=compress_level, mtime=0)
