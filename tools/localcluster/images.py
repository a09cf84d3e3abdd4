"""Container images without a registry: imported and unpacked once, then shared by all nodes as hard links.

A store is a containerd data folder that holds exactly one list of image archives. It is made from the store of the
list without its last archive, so each archive is unpacked once, and a changed small image costs only itself. Blobs and
committed snapshots are never written to again, therefore nodes can share them; the databases are copied.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from localcluster.build import Say
from localcluster.cache import cache_root, digest_of, keep_newest, locked, make_once
from localcluster.errors import LocalClusterError
from localcluster.node import PAUSE_IMAGE, containerd_configuration
from localcluster.patience import PATIENCE_SECONDS
from localcluster.processes import log_tail, run, spawn

_NAMESPACE = "k8s.io"
_SHARED_FOLDERS = ("io.containerd.content.v1.content/blobs", "io.containerd.snapshotter.v1.overlayfs/snapshots")
_COPIED_FILES = ("io.containerd.metadata.v1.bolt/meta.db", "io.containerd.snapshotter.v1.overlayfs/metadata.db")
_KEPT_STORES = 9
_POLL_SECONDS = 0.05
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def store(archives: Sequence[Path], digests: Mapping[str, str], programs: Path, progress: Say) -> Path:
    """The store that holds the archives and the pause image; made when it is not in the cache.

    Args:
        archives: of images.
        digests: of the archives' content, by their names; to reckon them takes seconds.
        programs: the folder with the pause program.
        progress: is told what takes long.
    """
    # Large first: they change least, and every store is built upon the one before it.
    ordered = sorted(archives, key=lambda archive: (-archive.stat().st_size, archive.name))
    folder = cache_root() / "stores"
    digest = digest_of([_containerd_version(), (programs / "pause").read_bytes()])
    folder.mkdir(parents=True, exist_ok=True)
    made = make_once(folder / digest, lambda making: _make_first(making, programs))
    os.utime(made)
    for archive in ordered:
        digest = digest_of([digest, digests[archive.name]])
        previous = made

        def make(making: Path, previous: Path = previous, archive: Path = archive) -> None:
            progress(f"unpacking {archive.name} ({archive.stat().st_size >> 20} MiB) once for all nodes")
            clone(previous, making)
            _import(making, archive)

        made = make_once(folder / digest, make)
        os.utime(made)
    keep_newest(folder, _KEPT_STORES, made)  # running nodes have links of their own
    return made


def clone(source: Path, target: Path) -> None:
    """Fill the empty folder `target` with `source`'s images; afterwards either may change without the other."""
    with locked(source.parent / "prune.lock", shared=True):
        for name in _SHARED_FOLDERS:
            if (source / name).is_dir():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                run(["cp", "--archive", "--link", str(source / name), str(target / name)])
        for name in _COPIED_FILES:
            if (source / name).is_file():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source / name, target / name)


def import_into(containerd_socket: Path, archive: Path) -> None:
    """Import an archive into a running containerd."""
    try:
        run(["ctr", "--address", str(containerd_socket), "--namespace", _NAMESPACE, "images", "import", str(archive)])
    except LocalClusterError as error:
        raise LocalClusterError(
            f"{archive} cannot be imported as a container image; build it again. {error}"
        ) from error


def _make_first(folder: Path, programs: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="localcluster-pause-") as temporary:
        archive = Path(temporary) / "pause.tar"
        write_archive(archive, programs / "pause", PAUSE_IMAGE)
        _import(folder, archive)


def _import(folder: Path, archive: Path) -> None:
    """Import into the store `folder` with a containerd that runs only for this."""
    state = Path("/run/containerd")
    configuration = folder / "containerd.toml"
    configuration.write_text(containerd_configuration(folder, state, str(state / "containerd.sock")))
    # A mount namespace of its own, with its own /run: whatever happens, no mount and no file stays on the host.
    script = 'mount -t tmpfs tmpfs /run && exec containerd --config "$0"'
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, str(configuration)]
    log = folder / "containerd.log"
    daemon = spawn(command, log)
    socket = Path(f"/proc/{daemon.pid}/root{state}/containerd.sock")
    try:
        _wait_for_socket(daemon, socket, log)
        import_into(socket, archive)
    finally:
        daemon.terminate()
        daemon.wait()


def _wait_for_socket(daemon: subprocess.Popen[bytes], socket: Path, log: Path) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not socket.exists():
        if daemon.poll() is not None or time.monotonic() > end:
            raise LocalClusterError(f"containerd did not start; its log ends with:\n{log_tail(log)}")
        time.sleep(_POLL_SECONDS)


def _containerd_version() -> str:
    return run(["containerd", "--version"])


def write_archive(archive: Path, program: Path, image: str) -> None:
    """Write an archive of the image `image` that holds one static program; no builder of images is needed for that."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        entry = tarfile.TarInfo(program.name)
        entry.mode, entry.size = 0o755, program.stat().st_size
        tar.addfile(entry, io.BytesIO(program.read_bytes()))
    blobs: list[bytes] = []

    def blob(content: bytes, media_type: str) -> dict[str, object]:
        blobs.append(content)
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    oci = "application/vnd.oci.image"
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    layer_digest = blob(layer.getvalue(), f"{oci}.layer.v1.tar")
    configuration = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [layer_digest["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": blob(json.dumps(configuration).encode(), f"{oci}.config.v1+json"),
        "layers": [layer_digest],
    }
    entry_point = blob(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    entry_point["annotations"] = {"io.containerd.image.name": image}
    index = {"schemaVersion": 2, "manifests": [entry_point]}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    files |= {f"blobs/sha256/{hashlib.sha256(content).hexdigest()}": content for content in blobs}
    with tarfile.open(archive, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
