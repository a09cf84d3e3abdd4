"""Keeps the coordinator's serving certificate and the authority that launchers trust, in one Secret each.

`muster-coordinator-tls` holds what a server shows: the serving certificate with its key, and the bundle of authorities
that clients trust. Monitoring reads it. `muster-coordinator-ca` holds the authorities' keys: only the leader reads it.

Launchers learn the authority from a mounted bundle, which reaches running pods late. So an authority is published for a
month before it signs anything, and stays in the bundle for a month after it has been replaced: next -> current ->
previous. The keys are written first: a leader that finds the second write missing derives it from the first.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

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
AUTHORITY_SECRET_NAME = "muster-coordinator-ca"  # noqa: S105 - a name
AUTHORITY_LIFE = timedelta(days=365)
SERVING_LIFE = timedelta(days=14)
PUBLISHED_BEFORE_USE = timedelta(days=30)
SEEN_BEFORE_USE = timedelta(hours=1)
"""A leader publishes an authority itself for this long before the authority signs. By then the jobs' bundles are
written, and kubelets have refreshed what their pods mount. The leader before may have ended between the two writes."""
TRUSTED_AFTER_USE = timedelta(days=30)
UNPUBLISHED = timedelta(days=1)
"""An authority that is older than this and in no bundle is replaced by a new one: its month begins when it is
published."""
BACKDATED = timedelta(hours=1)  # certificates are valid from this long ago, for clients whose clocks are behind

log = structlog.get_logger()
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM."""

    certificate: bytes
    key: bytes

    @property
    def parsed(self) -> x509.Certificate:
        """Return the certificate, parsed."""
        return x509.load_pem_x509_certificate(self.certificate)


@dataclass(frozen=True, slots=True)
class Authorities:
    """The content of the Secret with the authorities' keys."""

    current: Pair
    following: Pair | None = None
    previous: bytes = b""  # certificates only: they sign nothing any more

    @property
    def bundle(self) -> bytes:
        """Return what clients trust, PEM: the current authority, the next one and previous ones."""
        following = self.following.certificate if self.following else b""
        return self.current.certificate + following + self.previous


@dataclass(frozen=True, slots=True)
class Certificates:
    """What a replica serves with: the serving certificate with its key, and the bundle for clients."""

    serving: Pair
    bundle: bytes


class NoCertificatesError(Exception):
    """The Secret that another issuer fills cannot be used; the message says what is wrong."""


def names_of(namespace: str) -> tuple[str, ...]:
    """Return the DNS names under which launchers reach the coordinator."""
    qualified = f"{SERVICE_NAME}.{namespace}"
    return (SERVICE_NAME, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local")


def authorities_after(
    held: Authorities | None, published: Certificates | None, now: datetime, *, may_switch: bool
) -> Authorities:
    """Return the authorities to keep from now on, the same value when nothing is due. An authority is due for renewal
    when a third of its life is left.

    Args:
        held: the present authorities; None: there are none that can be used.
        published: the certificates and the bundle that clients see now.
        now: the time of day.
        may_switch: whether this leader has published the next authority for long enough itself.
    """
    if held is None:
        return Authorities(new_authority(now))
    if held.previous and _may_forget(held, published, now):
        held = replace(held, previous=b"")
    following = held.following
    if following is not None and (
        not _is_valid(following.parsed, now)
        or (_age(following, now) > UNPUBLISHED and not _is_in_bundle(following, published))
    ):
        following = new_authority(now)
    if following is None and _is_due(held.current.parsed, now):
        following = new_authority(now)
    if following != held.following:
        held = replace(held, following=following)
    unusable = not _is_valid(held.current.parsed, now)
    if following is not None and (unusable or (may_switch and _age(following, now) >= PUBLISHED_BEFORE_USE)):
        return Authorities(following, previous=held.current.certificate)
    return held


def certificates_after(
    held: Certificates | None, authorities: Authorities, names: tuple[str, ...], now: datetime
) -> Certificates:
    """Return the certificates to serve with from now on, the same value when nothing is due. A certificate is due for
    renewal when a third of its life is left."""
    if (
        held is None
        or _is_due(held.serving.parsed, now)
        or _names(held.serving.parsed) != set(names)
        or not _is_issued_by(held.serving, authorities.current)
    ):
        return Certificates(new_serving(authorities.current, names, now), authorities.bundle)
    return held if held.bundle == authorities.bundle else Certificates(held.serving, authorities.bundle)


def new_authority(now: datetime) -> Pair:
    """Create a self-signed authority, ECDSA P-256."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"muster coordinator CA {now:%Y-%m-%d %H:%M:%S}")])
    builder = (
        _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return _signed(builder, key, key)


def new_serving(authority: Pair, names: tuple[str, ...], now: datetime) -> Pair:
    """Create a serving certificate for these DNS names, signed by the authority."""
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
    """Keeps both Secrets up to date. Only the leader calls `ensure`; every replica may `read`. With `is_external`
    another issuer, such as cert-manager, fills the Secret of the serving certificate: nothing is written.
    """

    def __init__(
        self,
        client: Client,
        namespace: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        is_external: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._now = now
        self._is_external = is_external
        self._published: tuple[bytes, datetime] | None = None  # the next authority, and since when clients see it

    async def ensure(self) -> Certificates:
        """Return the certificates to use, created or renewed when due. Call it at the start and about every ten
        minutes.

        Raises:
            ApiError: a Secret cannot be read or written.
            NoCertificatesError: another issuer fills the Secret and has not done so.
        """
        if self._is_external:
            return await self._external()
        while True:
            try:
                return await self._ensure()
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: use what it wrote

    async def read(self) -> Certificates | None:
        """Return what the Secret holds, None when it does not exist or cannot be used."""
        data = (await self._load(SECRET_NAME)).get("data") or {}
        return self._parsed(SECRET_NAME, _certificates_from, data) if data else None

    async def _external(self) -> Certificates:
        certificates = await self.read()
        if certificates is None:
            raise NoCertificatesError(
                f"Secret {SECRET_NAME} in namespace {self._namespace} lacks a usable tls.crt, tls.key and ca.crt, and "
                f"this operator leaves it to another issuer: kubectl -n {self._namespace} describe certificate "
                f"{SERVICE_NAME} says what keeps it"
            )
        return certificates

    async def _ensure(self) -> Certificates:
        now = self._now()
        secret, authority_secret = await self._load(SECRET_NAME), await self._load(AUTHORITY_SECRET_NAME)
        data = secret.get("data") or {}
        published = self._parsed(SECRET_NAME, _certificates_from, data) if data else None
        held = None
        if authority_secret.get("data"):
            held = self._parsed(AUTHORITY_SECRET_NAME, _authorities_from, authority_secret["data"])
        may_switch = self._may_switch(held, published, now)
        # Generating keys takes a while for an event loop.
        authorities = await asyncio.to_thread(authorities_after, held, published, now, may_switch=may_switch)
        if authorities != held:
            await self._write(authority_secret, _authorities_data(authorities))
            log.info(
                "authorities renewed",
                secret=AUTHORITY_SECRET_NAME,
                until=authorities.current.parsed.not_valid_after_utc.isoformat(),
                next_is_published=authorities.following is not None,
            )
        names = names_of(self._namespace)
        wanted = await asyncio.to_thread(certificates_after, published, authorities, names, now)
        if data != _certificates_data(wanted):
            await self._write(secret, _certificates_data(wanted))
            log.info(
                "certificates renewed", secret=SECRET_NAME, until=wanted.serving.parsed.not_valid_after_utc.isoformat()
            )
        return wanted

    def _may_switch(self, held: Authorities | None, published: Certificates | None, now: datetime) -> bool:
        """Whether this process has published the next authority for long enough to let it sign."""
        following = held.following if held else None
        if following is None or not _is_in_bundle(following, published):
            self._published = None
            return False
        if self._published is None or self._published[0] != following.certificate:
            self._published = following.certificate, now
        return now - self._published[1] >= SEEN_BEFORE_USE

    async def _load(self, name: str) -> dict[str, Any]:
        try:
            data = await self._client.get(paths.core("secrets", namespace=self._namespace, name=name))
        except NotFound:
            metadata = {"name": name, "namespace": self._namespace}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        secret: dict[str, Any] = msgspec.json.decode(data)
        return secret

    async def _write(self, secret: dict[str, Any], data: dict[str, str]) -> None:
        body = {**secret, "data": data}
        if "resourceVersion" in secret["metadata"]:
            name = secret["metadata"]["name"]
            await self._client.put(paths.core("secrets", namespace=self._namespace, name=name), body)
        else:
            await self._client.post(paths.core("secrets", namespace=self._namespace), body)

    def _parsed(self, name: str, parse: Callable[[dict[str, bytes]], T], data: dict[str, str]) -> T | None:
        try:
            return parse({key: base64.b64decode(value or "") for key, value in data.items()})
        except (KeyError, ValueError, TypeError) as error:
            log.warning("a Secret cannot be used", secret=name, namespace=self._namespace, error=repr(error))
            return None


class OwnCertificates:
    """Certificates that one process makes for itself and keeps in its memory: nothing is read or written, and each
    replica has others."""

    def __init__(self, namespace: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._names = names_of(namespace)
        self._now = now
        self._authorities: Authorities | None = None
        self._certificates: Certificates | None = None

    async def ensure(self) -> Certificates:
        """Return the certificates to use, created or renewed when due."""
        return await asyncio.to_thread(self._renewed)

    async def read(self) -> Certificates:
        """Return the same: this process needs no leader to make them."""
        return await self.ensure()

    def _renewed(self) -> Certificates:
        now = self._now()
        authorities = authorities_after(self._authorities, self._certificates, now, may_switch=True)
        self._certificates = certificates_after(self._certificates, authorities, self._names, now)
        self._authorities = authorities
        return self._certificates


def _authorities_data(authorities: Authorities) -> dict[str, str]:
    following = authorities.following
    return _encoded(
        {
            "ca.crt": authorities.current.certificate,
            "ca.key": authorities.current.key,
            "next-ca.crt": following.certificate if following else b"",
            "next-ca.key": following.key if following else b"",
            "previous-ca.crt": authorities.previous,
        }
    )


def _certificates_data(certificates: Certificates) -> dict[str, str]:
    serving = certificates.serving
    return _encoded({"ca.crt": certificates.bundle, "tls.crt": serving.certificate, "tls.key": serving.key})


def _encoded(values: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in values.items() if value}


def _authorities_from(values: dict[str, bytes]) -> Authorities:
    following = _pair(values, "next-ca") if "next-ca.crt" in values else None
    previous = values.get("previous-ca.crt", b"")
    if previous:
        x509.load_pem_x509_certificates(previous)
    return Authorities(_pair(values, "ca"), following, previous)


def _certificates_from(values: dict[str, bytes]) -> Certificates:
    x509.load_pem_x509_certificates(values["ca.crt"])
    return Certificates(_pair(values, "tls"), values["ca.crt"])


def _pair(values: dict[str, bytes], name: str) -> Pair:
    pair = Pair(values[f"{name}.crt"], values[f"{name}.key"])
    key = serialization.load_pem_private_key(pair.key, None)
    if name != "tls" and not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{name}.key is no key of an elliptic curve")
    if key.public_key() != pair.parsed.public_key():
        raise ValueError(f"{name}.crt and {name}.key do not belong together")
    return pair


def _may_forget(held: Authorities, published: Certificates | None, now: datetime) -> bool:
    """Whether no server has shown a certificate of a previous authority for long enough to drop it."""
    if published is None or not _is_issued_by(published.serving, held.current):
        return False
    settled = _age(held.current, now) >= PUBLISHED_BEFORE_USE + TRUSTED_AFTER_USE
    return settled and _age(published.serving, now) >= timedelta(days=1)


def _is_issued_by(serving: Pair, authority: Pair) -> bool:
    try:
        serving.parsed.verify_directly_issued_by(authority.parsed)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _is_in_bundle(authority: Pair, published: Certificates | None) -> bool:
    return published is not None and authority.certificate in published.bundle


def _age(pair: Pair, now: datetime) -> timedelta:
    return now - pair.parsed.not_valid_before_utc - BACKDATED


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether a third of its life or less is left, or it is not valid now, such as one from a leader whose clock was
    ahead."""
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now <= life / 3 or not _is_valid(certificate, now)


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
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
