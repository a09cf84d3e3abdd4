"""The lock of Debian packages: what a release refuses, and what it says."""

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuild import fetch
from supply import SupplyError, debian
from supply.debian import Deb

APT = Deb("apt", "3.0.4", "amd64", "a" * 64, "apt", "3.0.4")
INDEX = """\
Package: libapt-pkg7.0
Version: 3.0.4
Architecture: amd64
Source: apt (3.0.4)
SHA256: {0}

Package: sed
Version: 4.9-2+b1
Architecture: amd64
Source: sed (4.9-2)
SHA256: {0}
""".format("b" * 64)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A base of two packages; called with a version it also has python3 in that version, a real .deb."""
    (tmp_path / "Packages").write_text(INDEX)
    monkeypatch.setattr(fetch, "base_root", lambda: tmp_path)
    monkeypatch.setattr(fetch, "DEBIAN_LOCK", tmp_path / "debian.lock")
    monkeypatch.setattr(fetch, "debian_packages", lambda _: tmp_path / "debs")

    def offer(version: str) -> None:
        control = tmp_path / "python3/DEBIAN/control"
        control.parent.mkdir(parents=True, exist_ok=True)
        control.write_text(
            f"Package: python3\nVersion: {version}\nArchitecture: all\nMaintainer: A <a@b.invalid>\n"
            "Source: python3-defaults\nDescription: a test\n"
        )
        debs = tmp_path / "debs"
        debs.mkdir(exist_ok=True)
        command = ["dpkg-deb", "--root-owner-group", "--build", tmp_path / "python3", debs / "python3.deb"]
        subprocess.run(command, check=True, capture_output=True)

    return offer


def test_what_is_locked_passes(mirror: Callable[[str], None]) -> None:
    mirror("3.13.5-1")
    debian.write_lock()
    debian.check(["operator"])
    assert {(deb.package, deb.source, deb.source_version) for deb in debian.read_lock()} == {
        ("libapt-pkg7.0", "apt", "3.0.4"),
        ("sed", "sed", "4.9-2"),
        ("python3", "python3-defaults", "3.13.5-1"),
    }


def test_a_deb_of_another_version_is_refused_with_both_and_the_command(mirror: Callable[[str], None]) -> None:
    mirror("3.13.5-1")
    debian.write_lock()
    mirror("3.13.5-2")
    with pytest.raises(SupplyError, match=r"python3: the mirror has 3\.13\.5-2, the lock 3\.13\.5-1\.\n.*`make lock`"):
        debian.check(["operator"])


def test_a_package_of_the_base_is_refused_too(mirror: Callable[[str], None], tmp_path: Path) -> None:
    mirror("3.13.5-1")
    debian.write_lock()
    (tmp_path / "Packages").write_text(INDEX.replace("4.9-2+b1", "4.9-2+b2"))
    with pytest.raises(SupplyError, match=r"sed: the mirror has 4\.9-2\+b2, the lock 4\.9-2\+b1"):
        debian.check(["operator"])


def test_a_changed_file_of_the_same_version_is_refused(mirror: Callable[[str], None], tmp_path: Path) -> None:
    mirror("3.13.5-1")
    debian.write_lock()
    (tmp_path / "Packages").write_text(INDEX.replace("b" * 64, "c" * 64))
    with pytest.raises(SupplyError, match=r"(?s)sed 4\.9-2\+b1: the mirror has c{64}, the lock b{64}.*find out which"):
        debian.check(["operator"])


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (APT, []),
        (replace(APT, package="dpkg"), ["dpkg: the mirror has 3.0.4, the lock has no such package."]),
        (replace(APT, architecture="arm64"), ["apt: the mirror has 3.0.4, the lock has no such package."]),
    ],
)
def test_a_package_that_is_not_locked_is_named(found: Deb, wrong: list[str]) -> None:
    assert debian.differences([found], [APT]) == wrong


@pytest.mark.usefixtures("mirror")
def test_a_damaged_line_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "debian.lock").write_text("# a comment\napt 3.0.4\n")
    with pytest.raises(SupplyError, match=r"debian\.lock: a line has not 6 words.*`make lock`"):
        debian.read_lock()


def test_the_lock_here_names_each_file() -> None:
    locked = debian.read_lock()
    assert {"python3", "libc6", "python3-torch"} <= {deb.package for deb in locked}
    assert all(len(deb.sha256) == 64 for deb in locked)
