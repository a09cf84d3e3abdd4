"""An image written by hand is one that every reader of OCI archives accepts; a cloned store shares only what is
fixed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

from localcluster.images import clone, write_archive


def test_the_archives_digests_and_sizes_are_those_of_its_blobs(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF...")
    archive = tmp_path / "image.tar"

    write_archive(archive, program, "localcluster.local/program:1")

    with tarfile.open(archive) as tar:
        content = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        files = {name: file.read() for name, file in content.items() if file is not None}
    entry = json.loads(files["index.json"])["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "localcluster.local/program:1"
    manifest = json.loads(files[blob_path(entry["digest"])])
    for reference in (entry, manifest["config"], *manifest["layers"]):
        data = files[blob_path(reference["digest"])]
        assert reference["size"] == len(data)
        assert reference["digest"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    with tarfile.open(fileobj=io.BytesIO(files[blob_path(manifest["layers"][0]["digest"])])) as layer:
        assert layer.getmember("program").mode == 0o755
    configuration = json.loads(files[blob_path(manifest["config"]["digest"])])
    assert configuration["config"]["Entrypoint"] == ["/program"]
    assert configuration["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def blob_path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def test_a_cloned_store_shares_blobs_and_snapshots_but_no_database(tmp_path: Path) -> None:
    names = {
        "blob": "io.containerd.content.v1.content/blobs/sha256/abc",
        "snapshot": "io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs/usr/bin/python",
        "images": "io.containerd.metadata.v1.bolt/meta.db",
        "snapshots": "io.containerd.snapshotter.v1.overlayfs/metadata.db",
        "half-written": "io.containerd.content.v1.content/ingest/xyz/data",
    }
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    for name in names.values():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)

    clone(source, target)

    same = {what: (target / name).exists() and (source / name).samefile(target / name) for what, name in names.items()}
    assert same == {"blob": True, "snapshot": True, "images": False, "snapshots": False, "half-written": False}
    assert (target / names["images"]).read_text() == names["images"]
    assert not (target / names["half-written"]).exists()
