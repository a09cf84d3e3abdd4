"""What is read out of an image's layers is what a container engine would unpack."""

from pathlib import Path

import pytest
from tests.unit.supply.archives import To, stanza, write_image

from supply import SupplyError
from supply.contents import read_image

STATUS = "var/lib/dpkg/status"
DIST = "muster/yarl-1.24.0.dist-info/METADATA"


def packages(archive: Path) -> list[str]:
    return [found["Package"] for found in read_image(archive).packages()]


def distributions(archive: Path) -> list[str]:
    return [path for path, _ in read_image(archive).distributions()]


def test_the_status_of_the_highest_layer_counts(tmp_path: Path) -> None:
    lower = {f"./{STATUS}": stanza("sed", "1") + stanza("python3-pip", "1")}
    assert packages(write_image(tmp_path, lower, {STATUS: stanza("sed", "1")})) == ["sed"]


def test_a_package_that_left_only_its_settings_is_none(tmp_path: Path) -> None:
    left = stanza("sed", "1").replace("install ok installed", "deinstall ok config-files")
    assert packages(write_image(tmp_path, {STATUS: stanza("apt", "2") + left})) == ["apt"]


@pytest.mark.parametrize(
    ("upper", "left"),
    [
        ({"opt/file": "x"}, [DIST]),
        ({f"{DIST.rpartition('/')[0]}/.wh.METADATA": ""}, []),
        ({"muster/.wh.yarl-1.24.0.dist-info": ""}, []),
        ({".wh.muster": ""}, []),
        ({"muster/.wh..wh..opq": ""}, []),
        ({"muster": To("/opt")}, []),
        # What the same layer brings stays, whichever comes first in it.
        ({DIST: "Name: yarl\n", "muster/.wh..wh..opq": ""}, [DIST]),
        ({"must/.wh..wh..opq": "", ".wh.must": ""}, [DIST]),
    ],
)
def test_what_a_higher_layer_takes_away_is_not_there(tmp_path: Path, upper: dict[str, str], left: list[str]) -> None:
    assert distributions(write_image(tmp_path, {DIST: "Name: yarl\n"}, upper)) == left


def test_an_image_without_dpkg_states_what_is_linked_into_it(tmp_path: Path) -> None:
    stated = {
        f"{STATUS}.d/musl-dev": stanza("musl-dev", "1.2.5-3"),
        f"{STATUS}.d/zlib1g-dev": stanza("zlib1g-dev", "1"),
    }
    assert packages(write_image(tmp_path, stated)) == ["musl-dev", "zlib1g-dev"]


def test_copyright_files_are_found_through_links(tmp_path: Path) -> None:
    archive = write_image(
        tmp_path,
        {
            "usr/share/doc/gcc-14-base/copyright": "words",
            "usr/share/doc/libgcc-s1": To("gcc-14-base"),
            "usr/share/doc/libabsolute": To("/usr/share/doc/gcc-14-base"),
            "usr/share/doc/libfile/copyright": To("../libgcc-s1/copyright"),
            "usr/share/doc/libhard/copyright": To("usr/share/doc/gcc-14-base/copyright", hard=True),
            "usr/share/doc/circle": To("circle"),
        },
    )
    found = read_image(archive)
    wanted = {"gcc-14-base": "words", "libgcc-s1": "words", "libabsolute": "words", "libhard": "words"}
    assert {name: found.copyright_of(name) for name in wanted} == wanted
    assert found.copyright_of("circle") == found.copyright_of("none") == ""


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "image.tar").write_bytes(b"no tar")
    with pytest.raises(SupplyError, match=r"image\.tar is no OCI archive of one image: build it anew"):
        read_image(tmp_path / "image.tar")
