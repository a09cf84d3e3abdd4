"""Keys and certificates of one control plane: a CA, a serving certificate, the API server's kubelet client, SA keys.

Clients verify the API server with this CA, as they do in production; the API server's self-signed default would force
every client to look away. Users authenticate by token, so nothing else needs a certificate.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.errors import LocalClusterError

_VALID_DAYS = "3650"


@dataclass(frozen=True)
class Pki:
    """Where the files are."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.folder / "ca.key"

    @property
    def serving(self) -> Path:
        return self.folder / "apiserver.crt"

    @property
    def serving_key(self) -> Path:
        return self.folder / "apiserver.key"

    @property
    def kubelet_client(self) -> Path:
        return self.folder / "kubelet-client.crt"

    @property
    def kubelet_client_key(self) -> Path:
        return self.folder / "kubelet-client.key"

    @property
    def service_accounts(self) -> Path:
        return self.folder / "service-accounts.pub"

    @property
    def service_accounts_key(self) -> Path:
        return self.folder / "service-accounts.key"


def make_pki(folder: Path, serving_names: Sequence[str]) -> Pki:
    """Make all keys in `folder`; `serving_names` are subject alternative names (`DNS:localhost`, `IP:127.0.0.1`)."""
    folder.mkdir(mode=0o700, parents=True)
    pki = Pki(folder)
    _openssl(
        *("req", "-x509", *_new_key(pki.ca_key), "-out", str(pki.ca), "-days", _VALID_DAYS),
        *("-subj", "/CN=localcluster-ca", "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
    )
    _signed(
        pki,
        (pki.serving, pki.serving_key),
        "/CN=kube-apiserver",
        ["extendedKeyUsage=serverAuth", f"subjectAltName={','.join(serving_names)}"],
    )
    _signed(
        pki,
        (pki.kubelet_client, pki.kubelet_client_key),
        "/O=system:masters/CN=kube-apiserver-kubelet-client",
        ["extendedKeyUsage=clientAuth"],
    )
    _openssl("genrsa", "-out", str(pki.service_accounts_key), "2048")
    _openssl("rsa", "-in", str(pki.service_accounts_key), "-pubout", "-out", str(pki.service_accounts))
    return pki


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path))


def _signed(pki: Pki, pair: tuple[Path, Path], subject: str, extensions: Sequence[str]) -> None:
    certificate, key = pair
    request = certificate.with_suffix(".csr")
    extension_file = certificate.with_suffix(".ext")
    extension_file.write_text("\n".join(["basicConstraints=critical,CA:FALSE", *extensions]) + "\n")
    _openssl("req", "-new", *_new_key(key), "-out", str(request), "-subj", subject)
    _openssl(
        *("x509", "-req", "-in", str(request), "-CA", str(pki.ca), "-CAkey", str(pki.ca_key), "-CAcreateserial"),
        *("-out", str(certificate), "-days", _VALID_DAYS, "-extfile", str(extension_file)),
    )


def _openssl(*arguments: str) -> None:
    try:
        answer = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise LocalClusterError(
            "the program `openssl` is missing: install the package openssl and run again"
        ) from error
    if answer.returncode != 0:
        raise LocalClusterError(f"`openssl {arguments[0]}` failed: {answer.stderr.strip()}")
