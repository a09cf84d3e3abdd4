"""The archives of a release: what was built, under the names by which the manifests of the release ask for it."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import pytest

from imagebuild import archive
from release.checks import ReleaseError
from release.images import SHIPPED, ReleasedImage, mirror_list, write_archive

LAYER = b"layer"


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """An archive as imagebuild writes it."""
    exported = tmp_path / "exported"
    exported.mkdir()
    config = b"{}"
    manifest = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"digest": digest_of(config)},
        "layers": [{"digest": digest_of(LAYER)}],
    }
    (exported / "manifest.json").write_text(json.dumps(manifest))
    for blob in (config, LAYER):
        (exported / hashlib.sha256(blob).hexdigest()).write_bytes(blob)
    output = tmp_path / "operator.tar"
    archive.pack(exported, ["localhost/muster/operator:0a1b", "localhost/muster/operator:dev"], output)
    return output


def contents(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as packed:
        return {member.name: file.read() for member in packed if (file := packed.extractfile(member)) is not None}


def test_an_archive_has_the_names_of_the_release(built: Path, tmp_path: Path) -> None:
    made = write_archive(built, tmp_path / "new.tar", "registry.example.org/muster/operator", "1.0.0")
    files = contents(tmp_path / "new.tar")
    manifest = next(content for content in files.values() if b"layers" in content)
    assert made.digest == digest_of(manifest)
    assert made.reference == f"registry.example.org/muster/operator:1.0.0@{made.digest}"
    entries = json.loads(files["index.json"])["manifests"]
    assert {entry["digest"] for entry in entries} == {made.digest}
    assert [entry["annotations"] for entry in entries] == [
        {
            "io.containerd.image.name": "registry.example.org/muster/operator:1.0.0",
            "org.opencontainers.image.ref.name": "1.0.0",
        },
        {"io.containerd.image.name": f"registry.example.org/muster/operator@{made.digest}"},
    ]
    assert json.loads(files["manifest.json"])[0]["RepoTags"] == ["registry.example.org/muster/operator:1.0.0"]
    assert {name for name in files if name.startswith("blobs/")} == {
        name for name in contents(built) if name.startswith("blobs/")
    }
    assert LAYER in files.values()


def test_equal_images_give_equal_bytes(built: Path, tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        write_archive(built, tmp_path / name, "registry.example.org/operator", "1.0.0")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


@pytest.mark.parametrize("digest", ["", digest_of(b"another")])
def test_an_archive_without_its_manifest_is_refused(digest: str, tmp_path: Path) -> None:
    index = json.dumps({"manifests": [{"digest": digest}]}).encode()
    path = tmp_path / "broken.tar"
    with tarfile.open(path, "w") as packed:
        for name, content in {"index.json": index, f"blobs/{digest.replace(':', '/')}": b"{}"}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            packed.addfile(entry, io.BytesIO(content))
    with pytest.raises(ReleaseError, match=r"broken\.tar: .*build the images again"):
        write_archive(path, tmp_path / "new.tar", "registry.example.org/operator", "1.0.0")


def test_the_list_for_mirrors_has_one_reference_a_line() -> None:
    images = {name: ReleasedImage(f"r/{name}", "1.0.0", f"sha256:{name}") for name in ("operator", "burn-in")}
    assert mirror_list(images) == "r/burn-in:1.0.0@sha256:burn-in\nr/operator:1.0.0@sha256:operator\n"


def test_images_of_examples_are_not_shipped() -> None:
    assert {"operator", "launcher", "burn-in"} <= set(SHIPPED)
    assert not {"torch-ddp", "recipes"} & set(SHIPPED)
