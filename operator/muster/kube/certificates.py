"""The coordinator's certificate and the authority that launchers trust, kept in one Secret.

Launchers learn the authority from a mounted bundle, which reaches running pods late. So an authority is published
before it signs anything, and stays in the bundle after it has been replaced: next -> current -> previous.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster.kube import paths
from muster.kube.client import Client
from muster.kube.errors import AlreadyExists, Conflict, NotFound

SERVICE_NAME = "muster-coordinator"
SECRET_NAME = "muster-coordinator-tls"  # noqa: S105 - a name
AUTHORITY_LIFE = timedelta(days=3650)
SERVING_LIFE = timedelta(days=90)
PUBLISHED_BEFORE_USE = timedelta(days=1)
BACKDATED = timedelta(hours=1)  # for clocks that are behind

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """The certificate."""
        return x509.load_pem_x509_certificate(self.certificate)


@dataclass(frozen=True, slots=True)
class Certificates:
    """What the Secret holds."""

    authority: Pair
    serving: Pair
    next_authority: Pair | None = None
    previous_authority: bytes = b""  # its certificate only: nothing is signed by it any more

    @property
    def bundle(self) -> bytes:
        """What launchers trust, PEM: the current authority, the next one and the previous one."""
        following = self.next_authority.certificate if self.next_authority else b""
        return self.authority.certificate + following + self.previous_authority


def names_of(namespace: str) -> tuple[str, ...]:
    """The DNS names under which launchers reach the coordinator."""
    qualified = f"{SERVICE_NAME}.{namespace}"
    return (SERVICE_NAME, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local")


def brought_up_to_date(current: Certificates | None, names: tuple[str, ...], now: datetime) -> Certificates:
    """What the Secret shall hold now; the same value when nothing is due. Renewal is due when a third of life is left."""
    if current is None:
        authority = new_authority(now)
        return Certificates(authority, new_serving(authority, names, now))
    if current.previous_authority:
        previous = x509.load_pem_x509_certificate(current.previous_authority)
        if previous.not_valid_after_utc <= now:
            current = replace(current, previous_authority=b"")
    if current.next_authority is None and _is_due(current.authority.parsed, now):
        current = replace(current, next_authority=new_authority(now))
    following = current.next_authority
    expired = current.authority.parsed.not_valid_after_utc <= now
    if following is not None and (expired or _is_published(following, now)):
        current = Certificates(
            following, new_serving(following, names, now), previous_authority=current.authority.certificate
        )
    serving = current.serving.parsed
    if _is_due(serving, now) or _names(serving) != set(names):
        current = replace(current, serving=new_serving(current.authority, names, now))
    return current


def new_authority(now: datetime) -> Pair:
    """A self-signed authority, ECDSA P-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster coordinator CA {now:%Y-%m-%d %H:%M:%S}")])
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def new_serving(authority: Pair, names: tuple[str, ...], now: datetime) -> Pair:
    """A serving certificate for these DNS names, signed by the authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    builder = (
        _builder(subject, authority.parsed.subject, key.public_key(), now, SERVING_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return _signed(builder, key, issuer_key)


class CertificateKeeper:
    """Keeps the Secret up to date. Only the leader calls `ensure`; every replica may `read`."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        secret_name: str = SECRET_NAME,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = secret_name
        self._now = now

    async def ensure(self) -> Certificates:
        """The certificates to use, made or renewed when due. Call it at the start and every hour or so.

        Raises:
            ApiError: the Secret cannot be read or written.
        """
        while True:
            secret, current = await self._load()
            # Generating keys takes a while for an event loop.
            wanted = await asyncio.to_thread(brought_up_to_date, current, names_of(self._namespace), self._now())
            if wanted == current:
                return wanted
            body = {**secret, "data": _to_data(wanted)}
            try:
                if "resourceVersion" in secret["metadata"]:
                    path = paths.core("secrets", namespace=self._namespace, name=self._name)
                    await self._client.put(path, body)
                else:
                    await self._client.post(paths.core("secrets", namespace=self._namespace), body)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: use what it wrote
            log.info(
                "certificates renewed", secret=self._name, until=wanted.serving.parsed.not_valid_after_utc.isoformat()
            )
            return wanted

    async def read(self) -> Certificates | None:
        """What the Secret holds, None when there is none or it cannot be used."""
        return (await self._load())[1]

    async def _load(self) -> tuple[dict[str, Any], Certificates | None]:
        try:
            data = await self._client.get(paths.core("secrets", namespace=self._namespace, name=self._name))
        except NotFound:
            metadata = {"name": self._name, "namespace": self._namespace}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}, None
        secret: dict[str, Any] = msgspec.json.decode(data)
        try:
            return secret, _from_data(secret.get("data") or {})
        except (KeyError, ValueError, InvalidSignature) as error:
            log.warning("certificates cannot be used and are made anew", secret=self._name, error=str(error))
            return secret, None


def _to_data(certificates: Certificates) -> dict[str, str]:
    following = certificates.next_authority
    values = {
        "ca.crt": certificates.authority.certificate,
        "ca.key": certificates.authority.key,
        "tls.crt": certificates.serving.certificate,
        "tls.key": certificates.serving.key,
        "next-ca.crt": following.certificate if following else b"",
        "next-ca.key": following.key if following else b"",
        "previous-ca.crt": certificates.previous_authority,
    }
    return {name: base64.b64encode(value).decode() for name, value in values.items() if value}


def _from_data(data: dict[str, str]) -> Certificates:
    values = {name: base64.b64decode(value) for name, value in data.items()}
    authority = Pair(values["ca.crt"], values["ca.key"])
    serving = Pair(values["tls.crt"], values["tls.key"])
    following = Pair(values["next-ca.crt"], values["next-ca.key"]) if "next-ca.crt" in values else None
    for pair in (authority, serving, *([following] if following else [])):
        key = serialization.load_pem_private_key(pair.key, None)
        if key.public_key() != pair.parsed.public_key():
            raise ValueError("a certificate and its key do not belong together")
    serving.parsed.verify_directly_issued_by(authority.parsed)
    return Certificates(authority, serving, following, values.get("previous-ca.crt", b""))


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now <= life / 3


def _is_published(authority: Pair, now: datetime) -> bool:
    return now >= authority.parsed.not_valid_before_utc + BACKDATED + PUBLISHED_BEFORE_USE


def _names(certificate: x509.Certificate) -> set[str]:
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return set(extension.value.get_values_for_type(x509.DNSName))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _signed(
    builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey
) -> Pair:
    certificate = builder.sign(signer, hashes.SHA256())
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
