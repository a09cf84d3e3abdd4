"""A registry on the loopback, as mirrors are, and a program that pushes to it."""

import json
import os
import shutil
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from imagebuild.archive import blob_path, read_digest
from localcluster.cache import cache_root, digest_of, make_once
from localcluster.controlplane import free_port
from localcluster.processes import kill, log_tail, spawn

START_SECONDS = 60
PATIENCE_SECONDS = 10

Push = Callable[[Path, str], str]


def _fetch_registry(folder: Path) -> None:
    """Take the program out of Debian's package, which is not installed: that would start a service."""
    fetch = ["apt-get", "-q", "-oAPT::Sandbox::User=root", "download", "docker-registry"]
    if subprocess.run(fetch, cwd=folder, capture_output=True, check=False).returncode != 0:
        subprocess.run(["apt-get", "-q", "-oDPkg::Lock::Timeout=300", "update"], capture_output=True, check=False)
        subprocess.run(fetch, cwd=folder, capture_output=True, check=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder / "out"], check=True)
    shutil.move(folder / "out/usr/bin/docker-registry", folder)
    shutil.rmtree(folder / "out")
    package.unlink()


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Host and port of an empty registry."""
    program = make_once(cache_root() / "registry" / digest_of(["debian"]), _fetch_registry) / "docker-registry"
    folder, address = tmp_path_factory.mktemp("registry"), f"127.0.0.1:{free_port()}"
    (folder / "config.yml").write_text(
        f'version: 0.1\nstorage: {{filesystem: {{rootdirectory: "{folder}"}}}}\nhttp: {{addr: "{address}"}}\n'
    )
    log = folder / "log"
    process = spawn([str(program), "serve", str(folder / "config.yml")], log, environment=dict(os.environ))
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(address):
            assert process.poll() is None, log_tail(log)
            assert time.monotonic() < until, log_tail(log)
            time.sleep(0.05)
        yield address
    finally:
        kill(process)


def _answers(address: str) -> bool:
    try:
        return bool(_ask(address, "GET", "").status == 200)
    except OSError:
        return False


@pytest.fixture
def push(registry: str) -> Push:
    """`push(archive, repository)` returns the pushed image's name by digest."""

    def push_archive(archive: Path, repository: str) -> str:
        digest = read_digest(archive)
        with tarfile.open(archive) as opened:
            manifest = json.loads(_blob(opened, digest))
            for part in (manifest["config"], *manifest["layers"]):
                place = _ask(registry, "POST", f"{repository}/blobs/uploads/", b"").headers["Location"]
                _put(f"{place}&digest={part['digest']}", _blob(opened, part["digest"]), "application/octet-stream")
            place = f"http://{registry}/v2/{repository}/manifests/{digest}"
            _put(place, _blob(opened, digest), manifest["mediaType"])
        return f"{registry}/{repository}@{digest}"

    return push_archive


def _blob(archive: tarfile.TarFile, digest: str) -> bytes:
    file = archive.extractfile(blob_path(digest))
    assert file is not None
    return file.read()


def _ask(address: str, method: str, path: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(f"http://{address}/v2/{path}", data=data, method=method)
    return urllib.request.urlopen(request, timeout=PATIENCE_SECONDS)


def _put(place: str, data: bytes, media_type: str) -> None:
    request = urllib.request.Request(place, data=data, method="PUT", headers={"Content-Type": media_type})
    urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()
