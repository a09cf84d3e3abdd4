"""What buildah keeps of images whose builds are gone: nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuild.buildah import Buildah


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    with Buildah(tmp_path / "storage") as made:
        yield made


def build(buildah: Buildah, folder: Path, name: str, content: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "same").write_text("same")
    (folder / "content").write_text(content)
    (folder / "Dockerfile").write_text('FROM scratch\nCOPY same /same\nCOPY content /content\nCMD ["run"]\n')
    buildah.build(folder / "Dockerfile", folder, name)


def layers(tmp_path: Path) -> int:
    return len(list((tmp_path / "storage/overlay").glob("*/diff")))


def test_only_images_with_kept_tags_stay_and_the_layers_that_they_share(buildah: Buildah, tmp_path: Path) -> None:
    for content in ("old", "kept", "new"):
        build(buildah, tmp_path / "context", f"localhost/muster/one:{content}", content)
    build(buildah, tmp_path / "context", "localhost/muster/other:old", "other")
    assert layers(tmp_path) == 5
    buildah.remove_others("muster/one", {"kept", "new"})
    names = buildah._run("images", "--format", "{{.Name}}:{{.Tag}}").split()
    assert sorted(names) == ["localhost/muster/one:kept", "localhost/muster/one:new", "localhost/muster/other:old"]
    assert layers(tmp_path) == 4


def test_the_container_of_a_killed_build_keeps_no_image(buildah: Buildah, tmp_path: Path) -> None:
    build(buildah, tmp_path / "context", "localhost/muster/one:old", "old")
    buildah._run("from", "--quiet", "localhost/muster/one:old")
    buildah.remove_others("muster/one", set())
    assert layers(tmp_path) == 0
