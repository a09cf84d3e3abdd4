"""A release is refused before anything is built, and the message says what to do."""

import subprocess
from pathlib import Path

import pytest

from chart import __main__ as chart
from muster import __version__
from release import __main__ as release
from release.checks import (
    ReleaseError,
    changelog_section,
    git,
    require_commit,
    require_free_tag,
    require_registry,
    require_version,
)
from skew import __main__ as skew

CHANGELOG = """# Changelog

About it.

## 1.1.0

New.

### Actions required

None.

## 1.0.0
"""


@pytest.mark.parametrize("version", ["1.0.0", "0.2.0-rc1", "1.2.3-rc.1", "10.20.30-alpha.beta-1"])
def test_semantic_versions_are_taken(version: str) -> None:
    require_version(version, version)


@pytest.mark.parametrize("version", ["", "1", "1.0", "v1.0.0", "01.0.0", "1.0.0-01", "1.0.0-", "1.0.0rc1", "1.0.0+x"])
def test_another_form_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match="give a semantic version without a leading v"):
        require_version(version, version)


def test_every_tool_that_takes_a_version_refuses_another_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remedy = "version 'v1.0': give a semantic version without a leading v"
    out = tmp_path / "out"
    assert chart.main(["--version", "v1.0", "--images", str(tmp_path / "images.json"), "--out", str(out)]) == 1
    assert remedy in capsys.readouterr().err
    assert not out.exists()
    with pytest.raises(SystemExit, match=remedy):
        skew.main(["v1.0", "HEAD"])
    assert release.main(["--version", "v1.0"]) == 1
    assert remedy in capsys.readouterr().err


def test_the_version_is_the_one_of_the_tree() -> None:
    with pytest.raises(ReleaseError, match=r"this tree is 1\.0\.0-rc1: set __version__ in operator/muster/__init__"):
        require_version("1.0.0", "1.0.0-rc1")


@pytest.mark.parametrize("registry", ["registry.example.org/muster", "localhost:5000", "muster.invalid/set-your-name"])
def test_a_registry_may_have_port_and_path(registry: str) -> None:
    require_registry(registry)


@pytest.mark.parametrize(
    "registry", ["", "https://r.org", "r.org/", "r.org/Muster", "r.org/a:1.0", "r.org//a", "-r.org", ".."]
)
def test_what_no_image_is_named_by_is_refused(registry: str) -> None:
    with pytest.raises(ReleaseError, match="give host and path in small letters"):
        require_registry(registry)


def test_the_notes_are_the_section_of_the_version() -> None:
    assert changelog_section(CHANGELOG, "1.1.0") == "## 1.1.0\n\nNew.\n\n### Actions required\n\nNone.\n"


@pytest.mark.parametrize("version", ["1.0.0", "1.1", "1.1.0-rc1", "2.0.0"])
def test_a_version_without_notes_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=f"says nothing under the heading `## {version}`"):
        changelog_section(CHANGELOG, version)


def test_an_edited_tree_is_refused() -> None:
    with pytest.raises(ReleaseError, match="commit what `git status` shows"):
        require_commit(None)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, of which the first has the tag v1.0.0."""
    for command in (
        ("init", "--quiet"),
        ("commit", "--allow-empty", "--quiet", "--message=first"),
        ("tag", "--annotate", "v1.0.0", "--message=first"),
        ("commit", "--allow-empty", "--quiet", "--message=second"),
    ):
        subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=A", "-c", "user.email=a@example.org", *command], check=True
        )
    return tmp_path


def test_a_tag_never_moves(repository: Path) -> None:
    first, second = git(repository, "rev-parse", "HEAD~"), git(repository, "rev-parse", "HEAD")
    require_free_tag(repository, "1.0.0", first)
    require_free_tag(repository, "1.1.0", second)
    with pytest.raises(ReleaseError, match=f"the tag v1.0.0 is of commit {first[:12]}, and this is {second[:12]}"):
        require_free_tag(repository, "1.0.0", second)


def test_a_failure_leaves_the_release_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "release"
    output.mkdir()
    (output / "SHA256SUMS").write_text("before")
    monkeypatch.setattr(release, "OUTPUT", output)
    monkeypatch.setattr(release, "clean_commit", lambda: "c0ffee")

    def fail(folder: Path, *_: str, **__: bool) -> None:
        (folder / "images.txt").write_text("half")
        raise ReleaseError("the registry is down")

    monkeypatch.setattr(release, "fill", fail)
    monkeypatch.setattr(release, "sign_folder", lambda folder, key: None)
    assert release.main(["--version", __version__]) == 1
    assert "make release: the registry is down" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release", "release.lock"]
    assert (output / "SHA256SUMS").read_text() == "before"
    monkeypatch.setattr(release, "fill", lambda folder, *_, **__: (folder / "SHA256SUMS").write_text("after"))
    assert release.main(["--version", __version__]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["release", "release.lock"]
    assert (output / "SHA256SUMS").read_text() == "after"
    told = capsys.readouterr().out.splitlines()[-1]
    assert told == f'git tag --annotate v{__version__} --message "Muster {__version__}" c0ffee'


def test_checksums_are_of_every_file_in_order(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("b.yaml", "a.yaml", "images/x.tar"):
        (tmp_path / name).write_text(name)
    (tmp_path / "SHA256SUMS").write_text(release.checksums(tmp_path))
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == ["a.yaml", "b.yaml", "images/x.tar"]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=tmp_path, check=True)
