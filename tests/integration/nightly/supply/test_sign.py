"""What a release signs, cosign verifies without a network; changed bytes and other keys it refuses."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.integration.nightly.supply.conftest import Push
from tests.unit.supply.archives import write_image

from supply import sign

VERIFY = ("--insecure-ignore-tlog", "--key")


def cosign(*arguments: str, alone: bool = False) -> subprocess.CompletedProcess[str]:
    """Run it; `alone` without any network, the loopback included."""
    command = [sign.find_cosign(), *arguments]
    environment = {**os.environ, "COSIGN_PASSWORD": ""}
    before = ["unshare", "--net"] if alone else []
    return subprocess.run([*before, *command], capture_output=True, text=True, env=environment, check=False)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    assert cosign("generate-key-pair", f"--output-key-prefix={tmp_path}/own").returncode == 0
    return tmp_path / "own.key"


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A folder of one image and one other file, with their sums."""
    folder = tmp_path / "release"
    (folder / "images").mkdir(parents=True)
    write_image(tmp_path / "image", {"launcher/run.pyz": "x"}).rename(folder / "images/muster-launcher.tar")
    (folder / "install.yaml").write_text("kind: List\n")
    files = ["images/muster-launcher.tar", "install.yaml"]
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in files]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return folder


def verify_sums(release: Path, key: Path) -> subprocess.CompletedProcess[str]:
    bundle = f"--bundle={release}/SHA256SUMS.sigstore.json"
    return cosign("verify-blob", *VERIFY, str(key), bundle, f"{release}/SHA256SUMS", alone=True)


def has_right_sums(release: Path) -> bool:
    check = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    return subprocess.run(check, cwd=release, capture_output=True, check=False).returncode == 0


def test_a_signed_folder_verifies_offline(release: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIGN_PASSWORD", "")
    sign.sign_folder(release, key)
    verified = verify_sums(release, key.with_suffix(".pub"))
    assert verified.returncode == 0, verified.stderr
    assert has_right_sums(release)
    assert (release / "cosign.pub").read_bytes() == key.with_suffix(".pub").read_bytes()
    statement = json.loads((release / "signatures/muster-launcher.json").read_text())
    assert statement["critical"]["identity"] == {"docker-reference": "muster/launcher"}
    assert not (release / "UNSIGNED-FOR-RELEASE").exists()
    assert not list(release.rglob("*.key"))


def test_a_changed_byte_is_refused(release: Path) -> None:
    sign.sign_folder(release, None)
    sums = release / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("install.yaml", "install.yamL"))
    assert "invalid signature" in verify_sums(release, release / "cosign.pub").stderr


def test_a_changed_file_is_seen_by_its_sum(release: Path) -> None:
    sign.sign_folder(release, None)
    (release / "install.yaml").write_text("kind: list\n")
    assert verify_sums(release, release / "cosign.pub").returncode == 0
    assert not has_right_sums(release)


def test_another_key_is_refused(release: Path, key: Path) -> None:
    sign.sign_folder(release, None)
    refused = verify_sums(release, key.with_suffix(".pub"))
    assert refused.returncode != 0
    assert "invalid signature" in refused.stderr


def test_a_throw_away_key_says_so_and_is_gone(release: Path) -> None:
    sign.sign_folder(release, None)
    assert "throw-away key" in (release / "UNSIGNED-FOR-RELEASE").read_text()
    assert not list(release.rglob("*.key"))


def attach(release: Path, image: str) -> None:
    signed = release / "signatures"
    files = [f"--payload={signed}/muster-launcher.json", f"--signature={signed}/muster-launcher.sig"]
    attached = cosign("attach", "signature", *files, image)
    assert attached.returncode == 0, attached.stderr


def test_a_pushed_image_verifies_by_its_digest(release: Path, key: Path, push: Push) -> None:
    sign.sign_folder(release, None)
    image = push(release / "images/muster-launcher.tar", "mirror/launcher")
    assert "no signatures found" in cosign("verify", *VERIFY, f"{release}/cosign.pub", image).stderr
    attach(release, image)
    verified = cosign("verify", *VERIFY, f"{release}/cosign.pub", image)
    assert verified.returncode == 0, verified.stderr
    assert "invalid signature" in cosign("verify", *VERIFY, f"{key.with_suffix('.pub')}", image).stderr


def test_the_signature_of_one_image_is_none_of_another(release: Path, push: Push, tmp_path: Path) -> None:
    sign.sign_folder(release, None)
    other = push(write_image(tmp_path / "other", {"launcher/run.pyz": "y"}), "mirror/other")
    attach(release, other)
    refused = cosign("verify", *VERIFY, f"{release}/cosign.pub", other)
    assert refused.returncode != 0
    assert "digest" in refused.stderr
