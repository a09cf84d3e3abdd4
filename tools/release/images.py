"""The images of a release: archives under the names of the release, and the list of them for mirrors.

Tests: tests/unit/release/test_images.py.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from imagebuild import plan
from imagebuild.archive import blob_path, digest_in, entry_of, index_files
from release.checks import ReleaseError

NO_REGISTRY = "muster.invalid/set-your-registry-in-the-overlay"
EXAMPLES = ("torch-ddp",)
SHIPPED = tuple(image.name for image in plan.IMAGES if not image.optional and image.name not in EXAMPLES)


@dataclass(frozen=True)
class ReleasedImage:
    """One image of a release.

    Attributes:
        repository: name without a tag.
        tag: the version.
        digest: of its OCI manifest.
    """

    repository: str
    tag: str
    digest: str

    @property
    def reference(self) -> str:
        """The name by which a pod asks for it: the digest decides, the tag is for people."""
        return f"{self.repository}:{self.tag}@{self.digest}"


def write_archive(source: Path, output: Path, repository: str, tag: str) -> ReleasedImage:
    """Copy an image's archive under its name in the release.

    Raises:
        ReleaseError: the archive does not have one image with its manifest.
    """
    with tarfile.open(source) as built, tarfile.open(output, "w", format=tarfile.GNU_FORMAT) as archive:
        digest, manifest = _manifest(source, built)
        for name, content in index_files(manifest, [f"{repository}:{tag}"]).items():
            archive.addfile(entry_of(name, len(content)), io.BytesIO(content))
        for member in built:
            blob = built.extractfile(member)
            if blob is not None and member.name.startswith("blobs/") and member.name != blob_path(digest):
                archive.addfile(entry_of(member.name, member.size), blob)
    return ReleasedImage(repository, tag, digest)


def mirror_list(images: dict[str, ReleasedImage]) -> str:
    """Return images.txt: one reference on each line."""
    return "".join(f"{image.reference}\n" for _, image in sorted(images.items()))


def _manifest(path: Path, archive: tarfile.TarFile) -> tuple[str, bytes]:
    """Return digest and content of the one OCI manifest in an archive."""
    try:
        digest = digest_in(archive)
        file = archive.extractfile(blob_path(digest))
    except (KeyError, ValueError) as error:
        raise ReleaseError(f"{path}: {error}: build the images again") from error
    manifest = file.read() if file else b""
    if digest != "sha256:" + hashlib.sha256(manifest).hexdigest():
        raise ReleaseError(f"{path}: its manifest is not the one of its digest: build the images again")
    return digest, manifest
