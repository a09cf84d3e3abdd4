"""Which sources are offered, and what is said where the mirror no longer has one."""

import json
from pathlib import Path

import pytest
from tests.unit.supply.archives import copyright_of, stanza, write_image

from imagebuild import fetch
from supply import SupplyError, sources
from supply.contents import Contents, read_image

DOC = "usr/share/doc"
SHA = "c" * 64


def contents(folder: Path, *licences: str) -> Contents:
    status = stanza("sqv", "1.3+b1", "Source: rust-sqv (1.3)", "Built-Using: rust-nettle (= 7.3), gcc (= 14)")
    files = {"var/lib/dpkg/status": status, f"{DOC}/sqv/copyright": copyright_of(*licences)}
    return read_image(write_image(folder, files))


def test_a_copyleft_package_and_what_is_built_into_it(tmp_path: Path) -> None:
    offers = sources.find_offers({"operator": contents(tmp_path, "LGPL-2+", "Expat")})
    assert set(offers) == {("rust-sqv", "1.3"), ("rust-nettle", "7.3"), ("gcc", "14")}
    assert offers["rust-sqv", "1.3"] == sources.Offer({"operator"}, {"sqv"}, {"Expat", "LGPL-2+"})


def test_other_licences_ask_for_none(tmp_path: Path) -> None:
    assert sources.find_offers({"operator": contents(tmp_path, "Expat")}) == {}


def test_images_that_share_a_package_share_its_source(tmp_path: Path) -> None:
    found = contents(tmp_path, "GPL-2")
    assert sources.find_offers({"agent": found, "operator": found})["gcc", "14"].images == {"agent", "operator"}


def apt(folder: Path, says: str) -> str:
    """A program in apt's place that prints something, or fails where that is nothing."""
    program = folder / "apt-get"
    program.write_text(
        f"#!/bin/sh\ntest update = \"$1\" && exit 0\ncat <<'END'\n{says}\nEND\ntest -n '{len(says) or ''}'\n"
    )
    program.chmod(0o755)
    return str(program)


def test_the_list_has_each_file_with_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = f"Reading package lists...\n'http://a.invalid/gcc_14.dsc' gcc_14.dsc 2162 SHA256:{SHA}"
    monkeypatch.setattr(fetch, "apt_for_base", lambda *_, **__: [apt(tmp_path, says)])
    sources.write({"operator": contents(tmp_path, "GPL-2")}, tmp_path / "sources", with_files=False)
    listed = json.loads((tmp_path / "sources/sources.json").read_text())
    assert [(each["source"], each["version"]) for each in listed] == [
        ("gcc", "14"),
        ("rust-nettle", "7.3"),
        ("rust-sqv", "1.3"),
    ]
    assert "The sources are not here." in (tmp_path / "sources/README").read_text()
    assert listed[0]["files"] == [{"name": "gcc_14.dsc", "sha256": SHA, "size_bytes": 2162}]


def test_a_list_without_digests_stops_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says = "'http://a.invalid/gcc_14.dsc' gcc_14.dsc 2162 MD5Sum:0"
    monkeypatch.setattr(fetch, "apt_for_base", lambda *_, **__: [apt(tmp_path, says)])
    with pytest.raises(SupplyError, match=r"gcc 14: apt-get names no file with a SHA-256"):
        sources.write({"operator": contents(tmp_path, "GPL-2")}, tmp_path / "sources", with_files=False)


def test_a_source_that_the_mirror_dropped_stops_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "apt_for_base", lambda *_, **__: [apt(tmp_path, "")])
    with pytest.raises(SupplyError, match=r"(?s)3 of 3 sources cannot be had:\ngcc 14: .*rust-sqv 1\.3: .*`make lock`"):
        sources.write({"operator": contents(tmp_path, "GPL-2")}, tmp_path / "sources", with_files=False)


def test_the_file_that_could_not_be_fetched_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "apt-get"
    failed = "E: Failed to fetch http://a.invalid/gcc_14.dsc  404  Not Found"
    says = f"{failed}\nE: Failed to fetch some archives."
    program.write_text(f"#!/bin/sh\ntest update = \"$1\" && exit 0\necho '{says}' >&2\nexit 100\n")
    program.chmod(0o755)
    monkeypatch.setattr(fetch, "apt_for_base", lambda *_, **__: [str(program)])
    with pytest.raises(SupplyError) as stopped:
        sources.write({"operator": contents(tmp_path, "GPL-2")}, tmp_path / "sources", with_files=True)
    assert f"gcc 14: {failed}" in str(stopped.value).splitlines()
