"""The archive that nodes import: valid digests, every name, the same bytes each time."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path

from imagebuild.archive import pack, read_digest, tarball

NAMES = ["localhost:5000/muster/example:abc", "localhost:5000/muster/example:dev"]


def exported(folder: Path) -> Path:
    folder.mkdir()
    blobs = {kind: f"content of {kind}".encode() for kind in ("config", "first", "second")}
    digests = {kind: hashlib.sha256(data).hexdigest() for kind, data in blobs.items()}
    for kind, data in blobs.items():
        (folder / digests[kind]).write_bytes(data)
    layers = ["first", "second", "first"]
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": f"sha256:{digests['config']}"},
        "layers": [{"digest": f"sha256:{digests[layer]}"} for layer in layers],
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    return folder


def contents(archive: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            file = tar.extractfile(member)
            assert file is not None
            assert member.name not in found
            found[member.name] = file.read()
    return found


def test_every_blob_is_there_under_its_digest(tmp_path: Path) -> None:
    pack(exported(tmp_path / "image"), NAMES, tmp_path / "image.tar")
    blobs = {name: data for name, data in contents(tmp_path / "image.tar").items() if name.startswith("blobs/")}
    assert len(blobs) == 4
    for name, data in blobs.items():
        assert name == f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def test_every_name_leads_to_the_manifest(tmp_path: Path) -> None:
    pack(exported(tmp_path / "image"), NAMES, tmp_path / "image.tar")
    files = contents(tmp_path / "image.tar")
    entries = json.loads(files["index.json"])["manifests"]
    digest = entries[0]["digest"]
    by_digest = f"localhost:5000/muster/example@{digest}"
    assert [entry["annotations"]["io.containerd.image.name"] for entry in entries] == [*NAMES, by_digest]
    tags = [entry["annotations"].get("org.opencontainers.image.ref.name") for entry in entries]
    assert tags == ["abc", "dev", None]
    assert digest == f"sha256:{hashlib.sha256((tmp_path / 'image' / 'manifest.json').read_bytes()).hexdigest()}"
    assert read_digest(tmp_path / "image.tar") == digest
    for entry in entries:
        data = files["blobs/" + entry["digest"].replace(":", "/")]
        assert (entry["size"], json.loads(data)["schemaVersion"]) == (len(data), 2)


def test_docker_finds_configuration_and_layers_in_order(tmp_path: Path) -> None:
    pack(exported(tmp_path / "image"), NAMES, tmp_path / "image.tar")
    files = contents(tmp_path / "image.tar")
    (image,) = json.loads(files["manifest.json"])
    assert image["RepoTags"] == NAMES
    assert files[image["Config"]] == b"content of config"
    assert [files[layer] for layer in image["Layers"]] == [
        b"content of first",
        b"content of second",
        b"content of first",
    ]


def test_packing_twice_gives_equal_bytes(tmp_path: Path) -> None:
    pack(exported(tmp_path / "one"), NAMES, tmp_path / "one.tar")
    pack(exported(tmp_path / "two"), NAMES, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_equal_members_give_equal_bytes() -> None:
    members = {"kubectl-muster": (b"program", 0o755), "LICENSE": (b"licence", 0o644)}
    one, two = tarball(members, 1), tarball(members, 1)
    assert one == two
    with tarfile.open(fileobj=io.BytesIO(one)) as archive:
        assert [(member.name, member.mode, member.mtime) for member in archive] == [
            ("kubectl-muster", 0o755, 0),
            ("LICENSE", 0o644, 0),
        ]
    assert gzip.decompress(one).count(b"program")
