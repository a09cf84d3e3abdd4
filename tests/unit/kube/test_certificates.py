"""The life of the coordinator's certificates: at no moment does a launcher with a mounted bundle distrust the
server."""

import asyncio
import base64
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.unit.kube.leaders import (
    DAY,
    HOUR,
    NAMES,
    START,
    Leaders,
    assert_that_a_clock_ahead_is_made_up_for,
    assert_that_jobs_have_the_next_authority_a_month_before,
    assert_that_nobody_distrusts,
    trusts,
)

from muster.kube.certificates import (
    AUTHORITY_SECRET_NAME,
    SECRET_NAME,
    Authorities,
    Certificates,
    NoCertificatesError,
    OwnCertificates,
    authorities_after,
    certificates_after,
    names_of,
    new_authority,
    new_serving,
)
from muster.kube.errors import Unreachable


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


def test_first_certificates(leaders: Leaders) -> None:
    made = leaders.ensure()
    assert trusts(made.bundle, made.serving.parsed, START)
    names = made.serving.parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [
        "muster-coordinator",
        "muster-coordinator.muster-system",
        "muster-coordinator.muster-system.svc",
        "muster-coordinator.muster-system.svc.cluster.local",
    ]
    writes = len(leaders.secrets.writes)
    assert leaders.ensure() == made == leaders.read()
    assert len(leaders.secrets.writes) == writes


def test_the_authoritys_key_does_not_lie_beside_the_serving_key(leaders: Leaders) -> None:
    leaders.ensure()
    leaders.now += 300 * DAY
    leaders.ensure()
    assert set(leaders.secrets.data(SECRET_NAME)) == {"ca.crt", "tls.crt", "tls.key"}
    keys = [value for name, value in leaders.secrets.data(AUTHORITY_SECRET_NAME).items() if name.endswith(".key")]
    assert len(keys) == 2
    assert not [key for key in keys if key in b"".join(leaders.secrets.data(SECRET_NAME).values())]


def test_serving_certificate_lives_two_weeks_and_is_renewed_when_a_third_is_left(leaders: Leaders) -> None:
    made = leaders.ensure()
    assert made.serving.parsed.not_valid_after_utc - START <= 14 * DAY
    leaders.now = START + 9 * DAY
    assert leaders.ensure() == made
    leaders.now = START + 10 * DAY
    renewed = leaders.ensure()
    assert renewed.serving != made.serving
    assert renewed.bundle == made.bundle
    assert leaders.read() == renewed, "so does a replica that does not lead serve"


def test_other_names_or_another_authority_renew_the_serving_certificate() -> None:
    authorities = Authorities(new_authority(START))
    made = certificates_after(None, authorities, NAMES, START)
    assert certificates_after(made, authorities, NAMES, START) is made
    assert certificates_after(made, authorities, names_of("elsewhere"), START).serving != made.serving
    other = certificates_after(made, Authorities(new_authority(START)), NAMES, START)
    assert trusts(other.bundle, other.serving.parsed, START)


def test_authority_changes_without_a_moment_of_distrust(leaders: Leaders) -> None:
    assert_that_nobody_distrusts(leaders, 10 * DAY)


def test_a_job_that_runs_for_weeks_has_the_next_authority_a_month_before_it_signs(leaders: Leaders) -> None:
    assert_that_jobs_have_the_next_authority_a_month_before(leaders, 10 * DAY)


def test_a_previous_authority_is_forgotten_a_month_after_it_was_replaced(leaders: Leaders) -> None:
    first = leaders.ensure()
    leaders.now += 250 * DAY
    leaders.ensure()
    leaders.now += 30 * DAY
    leaders.ensure()
    leaders.now += HOUR
    assert first.bundle in leaders.ensure().bundle
    leaders.now += 29 * DAY
    assert first.bundle in leaders.ensure().bundle
    for _ in range(4):
        leaders.now += DAY
        last = leaders.ensure()
    assert first.bundle not in last.bundle


def test_a_leader_switches_only_to_what_it_has_published_itself_for_an_hour(leaders: Leaders) -> None:
    """The leader before may have died before the jobs had the bundle, and nobody led since."""
    leaders.ensure()
    leaders.now += 250 * DAY
    next_one = leaders.ensure().bundle
    leaders.now += 60 * DAY
    leaders.replace()
    signs = leaders.secrets.data(AUTHORITY_SECRET_NAME)["ca.crt"]
    assert leaders.ensure().bundle == next_one
    leaders.now += HOUR - timedelta(minutes=1)
    leaders.ensure()
    assert leaders.secrets.data(AUTHORITY_SECRET_NAME)["ca.crt"] == signs
    leaders.now += timedelta(minutes=1)
    leaders.ensure()
    assert leaders.secrets.data(AUTHORITY_SECRET_NAME)["ca.crt"] != signs


def test_an_authority_that_nobody_was_shown_is_made_anew(leaders: Leaders) -> None:
    leaders.ensure()
    leaders.now += 250 * DAY
    leaders.secrets.dies_at = len(leaders.secrets.writes) + 1  # after the keys are written, before the bundle is
    with pytest.raises(Unreachable):
        leaders.ensure()
    unseen = leaders.secrets.data(AUTHORITY_SECRET_NAME)["next-ca.crt"]
    leaders.replace()
    leaders.now += 40 * DAY
    leaders.ensure()
    leaders.now += 2 * HOUR
    bundle = leaders.ensure().bundle
    assert unseen not in bundle
    assert len(x509.load_pem_x509_certificates(bundle)) == 2, "its month has just begun"


@pytest.mark.parametrize("before", [True, False], ids=["before the write", "after the write"])
@pytest.mark.parametrize("days", [0, 10, 250, 281], ids=["first start", "serving", "next authority", "switch"])
@pytest.mark.parametrize("write", [1, 2])
def test_a_leader_that_dies_at_a_write_leaves_what_the_next_one_completes(
    leaders: Leaders, days: int, write: int, before: bool
) -> None:
    bundles = []
    if days:
        bundles.append(leaders.ensure().bundle)
    if days > 250:
        leaders.now = START + 250 * DAY
        bundles.append(leaders.ensure().bundle)
        leaders.now = START + (days - 1) * DAY
        leaders.ensure()
    leaders.now = START + days * DAY
    leaders.secrets.dies_at, leaders.secrets.dies_before = len(leaders.secrets.writes) + write, before
    try:
        leaders.ensure()
    except Unreachable:
        # Meanwhile the replica that does not lead serves what there is, and launchers have what was published.
        if bundles:
            assert trusts(bundles[-1], leaders.read().serving.parsed, leaders.now) or days == 250
    leaders.secrets.dies_at = 0
    leaders.replace()
    for _ in range(3):
        found = leaders.ensure()
        assert trusts(found.bundle, found.serving.parsed, leaders.now)
        assert all(trusts(bundle, found.serving.parsed, leaders.now) for bundle in bundles[-1:])
        leaders.now += HOUR
    assert leaders.read() == found


def test_of_two_that_believe_to_lead_both_serve_what_was_written(leaders: Leaders) -> None:
    leaders.ensure()
    leaders.now += 250 * DAY
    other = leaders.another()
    done: list[Certificates] = []

    def meanwhile() -> None:
        loop = asyncio.new_event_loop()
        done.append(loop.run_until_complete(other.ensure()))
        loop.close()

    def in_thread() -> None:
        import threading

        thread = threading.Thread(target=meanwhile)
        thread.start()
        thread.join()

    leaders.secrets.beside = in_thread
    assert leaders.ensure() == done[0] == leaders.read()


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        (SECRET_NAME, "tls.key", b"no key"),
        (SECRET_NAME, "ca.crt", b"no certificate"),
        (SECRET_NAME, "tls.crt", b""),
        (AUTHORITY_SECRET_NAME, "ca.key", b"no key"),
        (AUTHORITY_SECRET_NAME, "ca.crt", b""),
        (AUTHORITY_SECRET_NAME, "previous-ca.crt", b"no certificate"),
    ],
)
def test_a_damaged_secret_is_made_anew_and_no_more_than_that(
    leaders: Leaders, name: str, key: str, value: bytes
) -> None:
    made = leaders.ensure()
    leaders.secrets.objects[name]["data"][key] = base64.b64encode(value).decode()
    found = leaders.ensure()
    assert trusts(found.bundle, found.serving.parsed, leaders.now)
    assert trusts(made.bundle, found.serving.parsed, leaders.now) == (name == SECRET_NAME)


def test_nameless_certificates_and_authorities_of_another_key_are_replaced(leaders: Leaders) -> None:
    """The key of the authority is of another kind."""
    leaders.ensure()
    elliptic = ec.generate_private_key(ec.SECP256R1())
    of_nobody = _self_signed(elliptic)
    leaders.secrets.put_data(SECRET_NAME, ca_crt=of_nobody, tls_crt=of_nobody, tls_key=_pem(elliptic))
    found = leaders.ensure()
    assert trusts(found.bundle, found.serving.parsed, leaders.now)
    of_rsa = rsa.generate_private_key(65537, 2048)
    leaders.secrets.put_data(AUTHORITY_SECRET_NAME, ca_crt=_self_signed(of_rsa), ca_key=_pem(of_rsa))
    found = leaders.ensure()
    assert trusts(found.bundle, found.serving.parsed, leaders.now)


def _self_signed(key: Any) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(5).not_valid_before(START).not_valid_after(START + 300 * DAY)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: Any) -> bytes:
    made: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made


@pytest.mark.parametrize("ahead", [2 * HOUR, 400 * DAY])
def test_certificates_of_a_leader_with_a_clock_ahead_are_replaced(leaders: Leaders, ahead: timedelta) -> None:
    """They are replaced once the clock is right."""
    assert_that_a_clock_ahead_is_made_up_for(leaders, ahead, every_hours=37 * 6)


def test_an_authority_that_was_deleted_is_trusted_no_more(leaders: Leaders) -> None:
    made = leaders.ensure()
    del leaders.secrets.objects[AUTHORITY_SECRET_NAME]
    found = leaders.ensure()
    assert made.bundle not in found.bundle
    assert trusts(found.bundle, found.serving.parsed, leaders.now)


class TestExternalIssuer:
    """cert-manager, for instance, keeps the Secret."""

    def test_nothing_is_written_and_no_authority_made(self, leaders: Leaders) -> None:
        leaders.keeper = leaders.another(is_external=True)
        with pytest.raises(NoCertificatesError, match="kubectl -n muster-system describe certificate"):
            leaders.ensure()
        authority = new_authority(START)
        for _ in range(2):
            serving = new_serving(authority, NAMES, leaders.now)
            leaders.secrets.put_data(
                SECRET_NAME, ca_crt=authority.certificate, tls_crt=serving.certificate, tls_key=serving.key
            )
            assert leaders.ensure() == Certificates(serving, authority.certificate) == leaders.read()
            leaders.now += 200 * DAY
        assert leaders.secrets.writes == []
        assert set(leaders.secrets.objects) == {SECRET_NAME}

    def test_a_secret_without_an_authority_is_not_served_with(self, leaders: Leaders) -> None:
        leaders.keeper = leaders.another(is_external=True)
        serving = new_serving(new_authority(START), NAMES, START)
        leaders.secrets.put_data(SECRET_NAME, tls_crt=serving.certificate, tls_key=serving.key)
        with pytest.raises(NoCertificatesError, match=r"ca\.crt"):
            leaders.ensure()


def test_certificates_of_a_process_s_own_are_renewed_in_its_memory() -> None:
    now = START
    keeper = OwnCertificates("muster-system", lambda: now)
    seen = [asyncio.run(keeper.ensure())]
    assert asyncio.run(keeper.read()) == seen[0]
    for _ in range(80):
        now += 5 * DAY
        made = asyncio.run(keeper.ensure())
        assert trusts(made.bundle, made.serving.parsed, now)
        seen.append(made)
    assert len({made.serving.certificate for made in seen}) > 40
    assert len({made.bundle for made in seen}) > 1, "the authority is renewed, too"


def test_nothing_is_due_that_is_not() -> None:
    held = Authorities(new_authority(START))
    assert authorities_after(held, None, START + 200 * DAY, may_switch=True) is held
