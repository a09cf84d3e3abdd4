"""Signs a release by cosign with a key, offline: no transparency log, no certificates, no registry.

Two things are signed: SHA256SUMS, by which every file of the folder is known, and for each image the statement that
cosign makes about a digest. It is attached to the image when that is pushed, and clusters then verify it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from imagebuild.archive import read_digest
from imagebuild.report import BuildError, run_quietly
from localcluster.build import COSIGN, extra
from supply import SupplyError

SUMS = "SHA256SUMS"
BUNDLE = "SHA256SUMS.sigstore.json"
PUBLIC_KEY = "cosign.pub"
SIGNATURES = "signatures"
WARNING = "UNSIGNED-FOR-RELEASE"
_REPOSITORY = Path(__file__).parents[2]
_WARNING_TEXT = """\
This folder is signed with a throw-away key, which ended with the command that made the folder. It is for tests.
A release is made by `make release KEY=file`, with a key that is kept outside the repository.
"""


@dataclass(frozen=True)
class _Signer:
    cosign: str
    key: Path
    environment: dict[str, str]

    def sign(self, file: Path, bundle: Path) -> None:
        offline = ["--yes", "--use-signing-config=false", "--tlog-upload=false"]
        self._run("sign-blob", f"--key={self.key}", *offline, f"--bundle={bundle}", str(file))

    def write_public_key(self, file: Path) -> None:
        self._run("public-key", f"--key={self.key}", f"--outfile={file}")

    def _run(self, *arguments: str) -> None:
        run_quietly([self.cosign, *arguments], env=self.environment)


def sign_folder(folder: Path, key: Path | None) -> None:
    """Sign a release folder that holds SHA256SUMS and `images/*.tar`, and write the public key beside them.

    Args:
        folder: the release.
        key: cosign's private key, in a file outside the repository, its password in COSIGN_PASSWORD. None makes a
            throw-away key, and writes a file that says so.
    """
    if not (folder / SUMS).is_file():
        raise SupplyError(f"{folder} has no {SUMS}: write it first, it is what is signed")
    if key is not None:
        require_usable(key)
        _sign(folder, _Signer(find_cosign(), key, dict(os.environ)))
        return
    cosign, environment = find_cosign(), {**os.environ, "COSIGN_PASSWORD": ""}
    with tempfile.TemporaryDirectory(prefix="muster-key-") as scratch:
        prefix = f"{scratch}/throw-away"
        run_quietly([cosign, "generate-key-pair", f"--output-key-prefix={prefix}"], env=environment)
        _sign(folder, _Signer(cosign, Path(f"{prefix}.key"), environment))
    (folder / WARNING).write_text(_WARNING_TEXT)


def find_cosign() -> str:
    """The program: the installed one if it is of version 3, else one built from its Go module."""
    installed = shutil.which("cosign")
    if installed:
        answer = subprocess.run([installed, "version", "--json"], capture_output=True, text=True, check=False)
        if answer.returncode == 0 and json.loads(answer.stdout)["gitVersion"].startswith("v3."):
            return installed
    return str(extra(COSIGN) / "cosign")


def require_usable(key: Path) -> None:
    """Raise SupplyError unless a release may be signed with this key, and its password opens it."""
    if not key.is_file():
        raise SupplyError(f"KEY={key}: no such file. `cosign generate-key-pair` makes one")
    if key.resolve().is_relative_to(_REPOSITORY):
        raise SupplyError(f"KEY={key} lies in the repository, from where it would be published: keep it elsewhere")
    if "COSIGN_PASSWORD" not in os.environ:
        raise SupplyError(f"KEY={key}: set COSIGN_PASSWORD to its password (empty for a key without one)")
    try:
        run_quietly([find_cosign(), "public-key", f"--key={key}"])
    except BuildError as error:
        reason = str(error).splitlines()[-1]
        raise SupplyError(f"KEY={key} and COSIGN_PASSWORD: cosign cannot read the key ({reason})") from error


def _sign(folder: Path, signer: _Signer) -> None:
    signer.write_public_key(folder / PUBLIC_KEY)
    signer.sign(folder / SUMS, folder / BUNDLE)
    for public in (folder / PUBLIC_KEY, folder / BUNDLE):
        public.chmod(0o644)  # cosign writes all its files for their owner alone
    signatures = folder / SIGNATURES
    signatures.mkdir(exist_ok=True)
    for archive in sorted((folder / "images").glob("*.tar")):
        payload = signatures / f"{archive.stem}.json"
        payload.write_text(json.dumps(_statement(archive.stem, read_digest(archive)), separators=(",", ":")))
        with tempfile.NamedTemporaryFile() as bundle:
            signer.sign(payload, Path(bundle.name))
            signed = json.loads(Path(bundle.name).read_text())["messageSignature"]["signature"]
        payload.with_suffix(".sig").write_text(signed)


def _statement(name: str, digest: str) -> dict[str, object]:
    """What cosign signs of an image ("simple signing", specs/SIGNATURE_SPEC.md of cosign)."""
    image = {
        "identity": {"docker-reference": f"muster/{name.removeprefix('muster-')}"},
        "image": {"docker-manifest-digest": digest},
    }
    return {"critical": {**image, "type": "cosign container image signature"}, "optional": None}
