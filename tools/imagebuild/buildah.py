"""Runs buildah with a storage of our own, so that nothing of the user's is touched and layers are reused.

Each command runs in a private mount namespace: whatever it mounts ends with it, also when it is killed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Container
from pathlib import Path
from typing import Self

from imagebuild.report import run_quietly


class Buildah:
    """buildah on one storage folder; use it as a context manager, alone on that folder."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        # What is mounted is recorded here and is wrong after a crash or a reboot: a fresh folder each time.
        self._run_root = tempfile.TemporaryDirectory(prefix="muster-buildah-")

    def __enter__(self) -> Self:
        self._run_root.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._run_root.cleanup()

    def _run(self, command: str, *arguments: str) -> str:
        storage = [f"--root={self._storage}", f"--runroot={self._run_root.name}", "--storage-driver=overlay"]
        separate = ["unshare", "--mount", "--propagation=private"]
        return run_quietly([*separate, "buildah", *storage, command, *arguments])

    def import_base(self, archive: Path, name: str) -> None:
        """Make `name` the image whose root file system is the tar `archive`, unless this storage has it."""
        if self._run("images", "--quiet", "--filter", f"reference={name}").strip():
            return
        with tempfile.TemporaryDirectory() as folder:
            dockerfile = Path(folder) / "Dockerfile"
            dockerfile.write_text(f'FROM scratch\nADD {archive.name} /\nCMD ["bash"]\n')
            self.build(dockerfile, archive.parent, name)

    def build(self, dockerfile: Path, context: Path, name: str) -> None:
        """Build `name` from a Dockerfile; registries are never asked."""
        options = ["--isolation=chroot", "--pull-never", "--layers", "--timestamp=0"]
        self._run("bud", *options, f"--file={dockerfile}", f"--tag={name}", str(context))

    def export(self, name: str, folder: Path) -> None:
        """Write an image's manifest and blobs flat into `folder`.

        The layers stay uncompressed, which nodes unpack faster (to a `dir:` only: buildah compresses for an `oci:`).
        """
        self._run("push", "--quiet", "--disable-compression", name, f"dir:{folder}")

    def remove_others(self, repository: str, kept: Container[str]) -> None:
        """Remove the images of a repository whose tags are not kept, with the layers that no other image has, and the
        containers of builds that were killed."""
        self._run("rm", "--all")
        images = (line.rpartition(":") for line in self._run("images", "--format", "{{.Name}}:{{.Tag}}").split())
        others = [f"{name}:{tag}" for name, _, tag in images if name.endswith(f"/{repository}") and tag not in kept]
        if others:
            self._run("rmi", *others)
