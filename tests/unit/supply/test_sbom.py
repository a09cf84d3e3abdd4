"""The SBOM of a small image: every package and distribution, valid, and the same bytes each time."""

import json
from pathlib import Path
from typing import Any

import pytest
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from tests.unit.supply.archives import Layer, copyright_of, stanza, write_image

from imagebuild import fetch
from supply import sbom
from supply.contents import read_image

CREATED = 1_700_000_000

LAYERS: tuple[Layer, ...] = (
    {
        "usr/lib/os-release": 'ID=debian\nVERSION_ID="13"\nDEBIAN_VERSION_FULL=13.6\nVERSION_CODENAME=trixie\n',
        "var/lib/dpkg/status": stanza(
            "libstdc++6", "1:14.2~rc1+b9", "Source: gcc-14 (14.2-1)", "Maintainer: G <g@x.org>"
        ),
        "usr/share/doc/libstdc++6/copyright": copyright_of("Expat", "GPL-3+"),
    },
    {
        "muster/Typing_Extensions-4.dist-info/METADATA": "Name: Typing_Extensions\nVersion: 4\nLicense: PSF-2.0\n",
        "muster/odd-1!2+local.dist-info/METADATA": "Name: odd\nVersion: 1!2+local\n",
        "usr/lib/python3/dist-packages/torch-2.6.egg-info": "Name: torch\nVersion: 2.6\n",
    },
)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(fetch, "DEBIAN_LOCK", tmp_path / "debian.lock")
    (tmp_path / "debian.lock").write_text(f"libstdc++6 1:14.2~rc1+b9 amd64 {'a' * 64} gcc-14 14.2-1\n")
    sbom.write(read_image(write_image(tmp_path, *LAYERS)), "operator", "1.2.3", CREATED, tmp_path / "sbom.json")
    return tmp_path / "sbom.json"


def by_name(written: Path) -> dict[str, dict[str, Any]]:
    return {package["name"]: package for package in json.loads(written.read_text())["packages"]}


def purl(package: dict[str, Any]) -> str:
    return "".join(reference["referenceLocator"] for reference in package.get("externalRefs", []))


def test_it_names_everything_and_is_valid(written: Path) -> None:
    everything = {"operator", "debian", "muster", "libstdc++6", "Typing_Extensions", "odd", "torch"}
    assert set(by_name(written)) == everything
    assert validate_full_spdx_document(parse_file(str(written))) == []


def test_a_debian_package(written: Path) -> None:
    package = by_name(written)["libstdc++6"]
    assert purl(package) == "pkg:deb/debian/libstdc%2B%2B6@1%3A14.2~rc1%2Bb9?arch=amd64&distro=trixie"
    assert package["licenseDeclared"] == "GPL-3.0-or-later AND MIT"
    assert package["checksums"] == [{"algorithm": "SHA256", "checksumValue": "a" * 64}]
    assert package["sourceInfo"] == "built from gcc-14 14.2-1"
    assert package["supplier"] == "Organization: G (g@x.org)"


def test_python_distributions(written: Path) -> None:
    found = by_name(written)
    assert purl(found["Typing_Extensions"]) == "pkg:pypi/typing-extensions@4"
    assert found["Typing_Extensions"]["licenseDeclared"] == "PSF-2.0"
    assert purl(found["odd"]) == "pkg:pypi/odd@1%212%2Blocal"
    assert found["odd"]["licenseDeclared"] == "NOASSERTION"
    assert purl(found["torch"]) == ""  # Debian's: advisories are about the package


def test_what_holds_what(written: Path) -> None:
    document = json.loads(written.read_text())
    relations = {(each["relationshipType"], each["relatedSpdxElement"]) for each in document["relationships"]}
    packages = {package["SPDXID"] for package in document["packages"]}
    contained = packages - {"SPDXRef-Image", "SPDXRef-Base"}
    assert relations == {
        ("DESCRIBES", "SPDXRef-Image"),
        ("DESCENDANT_OF", "SPDXRef-Base"),
        *(("CONTAINS", each) for each in contained),
    }


def test_equal_images_give_equal_bytes(written: Path) -> None:
    again = written.with_name("again.json")
    sbom.write(read_image(written.with_name("image.tar")), "operator", "1.2.3", CREATED, again)
    assert again.read_bytes() == written.read_bytes()


def test_an_image_from_scratch_has_no_base(tmp_path: Path) -> None:
    image = read_image(write_image(tmp_path, {"launcher/run.pyz": "x"}))
    sbom.write(image, "launcher", "1.2.3", CREATED, tmp_path / "sbom.json")
    assert set(by_name(tmp_path / "sbom.json")) == {"launcher", "muster"}
