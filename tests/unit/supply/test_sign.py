"""What must hold before anything is signed; that signatures verify is shown in tests/integration/nightly/supply."""

from pathlib import Path

import pytest

from supply import SupplyError, sign


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sums, and a key beside it."""
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    (tmp_path / "own.key").touch()
    (tmp_path / "release").mkdir()
    (tmp_path / "release/SHA256SUMS").touch()
    return tmp_path / "release"


def test_a_key_that_is_not_there_is_refused(release: Path) -> None:
    with pytest.raises(SupplyError, match=r"KEY=\S+none\.key: no such file. `cosign generate-key-pair` makes one"):
        sign.sign_folder(release, release.with_name("none.key"))


def test_a_key_in_the_repository_is_refused(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign, "_REPOSITORY", release.parent)
    with pytest.raises(SupplyError, match=r"own\.key lies in the repository"):
        sign.sign_folder(release, release.with_name("own.key"))


def test_a_key_without_its_password_is_refused(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSIGN_PASSWORD")
    with pytest.raises(SupplyError, match=r"own\.key: set COSIGN_PASSWORD to its password"):
        sign.sign_folder(release, release.with_name("own.key"))


def test_a_key_that_its_password_does_not_open_is_refused(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cosign = release.with_name("cosign")
    cosign.write_text("#!/bin/sh\necho 'decryption failed' >&2\nexit 1\n")
    cosign.chmod(0o755)
    monkeypatch.setattr(sign, "find_cosign", lambda: str(cosign))
    with pytest.raises(SupplyError, match=r"own\.key and COSIGN_PASSWORD: .* \(decryption failed\)"):
        sign.sign_folder(release, release.with_name("own.key"))


def test_a_folder_without_sums_is_refused(release: Path) -> None:
    (release / "SHA256SUMS").unlink()
    with pytest.raises(SupplyError, match="has no SHA256SUMS: write it first"):
        sign.sign_folder(release, None)
