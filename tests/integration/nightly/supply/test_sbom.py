"""The SBOM of each image names what is in it, neither more nor less, as the image's own programs see it."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

from imagebuild import plan
from imagebuild.buildah import Buildah
from supply import sbom
from supply.contents import read_image

ROOT = Path(__file__).resolve().parents[4]
SYSTEM = [image.name for image in plan.IMAGES if not image.optional and image.name != "launcher"]
# Any folder may hold distributions, also one that Python does not search: a package brings others inside it.
FIND_DISTRIBUTIONS = """\
import importlib.metadata, os
folders = [top for top, *names in os.walk("/") if not top.startswith(("/proc", "/sys"))
           and any(name.endswith((".dist-info", ".egg-info")) for name in sum(names, []))]
for found in importlib.metadata.distributions(path=folders):
    print(found.name, found.version, sep="\\t")
"""

Inside = Callable[..., set[tuple[str, str]]]


@pytest.fixture(scope="session")
def images() -> dict[str, dict[str, str]]:
    """`make images`, and what it writes."""
    subprocess.run(["make", "--no-print-directory", "images"], cwd=ROOT, check=True)
    found: dict[str, dict[str, str]] = json.loads((ROOT / "build/images/images.json").read_text())
    return found


@pytest.fixture
def inside(images: dict[str, dict[str, str]], tmp_path: Path) -> Iterator[Inside]:
    """`inside(image, *command)` is what a program of the image prints, as pairs."""
    with Buildah(tmp_path / "storage") as buildah:
        made: dict[str, str] = {}

        def run(image: str, *command: str) -> set[tuple[str, str]]:
            if image not in made:
                archive = f"docker-archive:{images[image]['archive']}:{images[image]['image']}"
                made[image] = buildah._run("from", "--quiet", archive).strip()
            printed = buildah._run("run", "--isolation=chroot", "--user=0", made[image], "--", *command)
            name_and_version = (line.split("\t") for line in printed.splitlines())
            return {(name, version) for name, version in name_and_version}

        yield run
        for container in made.values():
            buildah._run("rm", container)


def write_sbom(images: dict[str, dict[str, str]], image: str, folder: Path) -> dict[str, set[tuple[str, str]]]:
    """The names and versions of the image's SBOM by kind, which is that of their identifiers."""
    out = folder / f"{image}.spdx.json"
    sbom.write(read_image(Path(images[image]["archive"])), image, "1.2.3", int(time.time()), out)
    assert validate_full_spdx_document(parse_file(str(out))) == []
    named: dict[str, set[tuple[str, str]]] = {"Debian": set(), "Python": set()}
    for package in json.loads(out.read_text())["packages"]:
        kind = package["SPDXID"].split("-")[1]
        named.setdefault(kind, set()).add((package["name"], package["versionInfo"]))
    return named


@pytest.mark.parametrize("image", SYSTEM)
def test_an_image_with_a_system(images: dict[str, dict[str, str]], inside: Inside, tmp_path: Path, image: str) -> None:
    named = write_sbom(images, image, tmp_path)
    assert named["Debian"] == inside(image, "dpkg-query", "--show", "--showformat=${Package}\\t${Version}\\n")
    assert named["Python"] == inside(image, "python3", "-c", FIND_DISTRIBUTIONS)
    assert named["Muster"] == {("muster", "1.2.3")}
    assert len(named["Base"]) == 1
    assert len(named["Debian"]) > 50


def test_the_launchers_image_has_what_is_linked_into_its_program(
    images: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    named = write_sbom(images, "launcher", tmp_path)
    assert {name for name, _ in named["Debian"]} == {"musl-dev"}
    assert (named["Muster"], named["Python"]) == ({("muster", "1.2.3")}, set())
    assert "Base" not in named
