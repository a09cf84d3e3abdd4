"""The life of the coordinator's certificates: at no moment does a launcher with a mounted bundle distrust the server."""

from datetime import UTC, datetime, timedelta

from cryptography import x509

from muster.kube import certificates
from muster.kube.certificates import Certificates, brought_up_to_date, names_of

START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = names_of("muster-system")


def trusts(bundle: bytes, serving: x509.Certificate, now: datetime) -> bool:
    for authority in x509.load_pem_x509_certificates(bundle):
        if (
            authority.subject == serving.issuer
            and authority.not_valid_before_utc <= now < authority.not_valid_after_utc
        ):
            serving.verify_directly_issued_by(authority)
            return serving.not_valid_before_utc <= now < serving.not_valid_after_utc
    return False


def test_first_certificates() -> None:
    made = brought_up_to_date(None, NAMES, START)
    assert trusts(made.bundle, made.serving.parsed, START)
    names = made.serving.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "muster-coordinator",
        "muster-coordinator.muster-system",
        "muster-coordinator.muster-system.svc",
        "muster-coordinator.muster-system.svc.cluster.local",
    ]
    assert brought_up_to_date(made, NAMES, START) is made


def test_serving_certificate_is_renewed_when_a_third_of_its_life_is_left() -> None:
    made = brought_up_to_date(None, NAMES, START)
    assert brought_up_to_date(made, NAMES, START + timedelta(days=59)) is made
    renewed = brought_up_to_date(made, NAMES, START + timedelta(days=61))
    assert renewed.serving != made.serving
    assert renewed.authority == made.authority


def test_other_names_renew_the_serving_certificate() -> None:
    made = brought_up_to_date(None, NAMES, START)
    assert brought_up_to_date(made, names_of("elsewhere"), START).serving != made.serving


def test_authority_changes_without_a_moment_of_distrust() -> None:
    """For thirty years, ten-daily: the bundle of ten days ago trusts the serving certificate of today, and back."""
    current, now = brought_up_to_date(None, NAMES, START), START
    authorities: set[bytes] = set()
    mounted: Certificates = current
    while now < START + timedelta(days=30 * 365):
        now += timedelta(days=10)
        mounted, current = current, brought_up_to_date(current, NAMES, now)
        authorities.add(current.authority.certificate)
        assert trusts(mounted.bundle, current.serving.parsed, now)
        assert trusts(current.bundle, current.serving.parsed, now)
        # A replica that has not reloaded yet serves what was current before.
        assert trusts(current.bundle, mounted.serving.parsed, now)
    assert len(authorities) >= 4
    assert len(x509.load_pem_x509_certificates(current.bundle)) <= 3


def test_secret_round_trip() -> None:
    now = START + timedelta(days=2500)
    made = brought_up_to_date(brought_up_to_date(None, NAMES, START), NAMES, now)
    assert made.next_authority is not None
    assert certificates._from_data(certificates._to_data(made)) == made
