"""A real torch for this machine's CPU: Debian's, out of the image of the example trainer."""

import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from imagebuild.fetch import images_cache
from localcluster.cache import digest_of, make_once

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(scope="session")
def root() -> Path:
    """The image's files. Kept in the cache: to remove as many takes a minute on a busy disk."""
    archives = sorted(images_cache().glob("torch-ddp/*/torch-ddp.tar"), key=lambda path: path.stat().st_mtime)
    if not archives:
        pytest.skip("no image with torch is cached: `make images` builds one")
    if os.geteuid() != 0:
        pytest.skip("only root can unpack an image")
    with tarfile.open(archives[-1]) as archive:
        layers = json.loads(read(archive, "manifest.json"))[0]["Layers"]
        # The last layer holds the example alone, and changes with it.
        return make_once(
            images_cache() / "unpacked" / digest_of(layers[:-1]), lambda to: unpack(archive, layers[:-1], to)
        )


def read(archive: tarfile.TarFile, name: str) -> bytes:
    stream = archive.extractfile(name)
    assert stream is not None
    return stream.read()


def unpack(archive: tarfile.TarFile, layers: list[str], to: Path) -> None:
    for layer in layers:
        stream = archive.extractfile(layer)
        assert stream is not None
        with subprocess.Popen(["tar", "-xf", "-", "-C", str(to)], stdin=subprocess.PIPE) as process:
            assert process.stdin is not None
            shutil.copyfileobj(stream, process.stdin, 2**20)
            process.stdin.close()
        assert process.returncode == 0


@pytest.fixture
def command(root: Path, tmp_path: Path) -> tuple[str, ...]:
    """The zygote with the image's own Python and libraries, and the hook of a test where it has written one."""
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    loader = next((root / "usr/lib64").glob("ld-linux*"), None) or next((root / "usr/lib").glob("ld-linux*"))
    folders = [libraries, root / "usr/lib", *(libraries / name for name in ("openblas-pthread", "blas", "lapack"))]
    path = f"{tmp_path}{os.pathsep}{ROOT / 'operator'}"
    environment = [f"PYTHONHOME={root / 'usr'}", f"PYTHONPATH={path}", "PYTHONDONTWRITEBYTECODE=1"]
    program = [str(loader), "--inhibit-cache", "--library-path", ":".join(map(str, folders)), f"{root}/usr/bin/python3"]
    return ("env", *environment, *program, "-m", "muster.node.checker.probes.zygote")
