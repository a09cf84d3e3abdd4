"""What redaction costs with hostile text and with many values: no more than grows with their size."""

import time

import pytest

from muster.world.redact import Redactor


@pytest.mark.parametrize(
    "text",
    [
        "eyJ-" * 50_000,
        "token" * 50_000,
        "a-" * 100_000,
        "-----BEGIN X" * 20_000,
        "a://" * 50_000,
        'token="' * 50_000,
        "-" * 200_000,
        "A_KEY" * 40_000,
        "a://:" * 40_000,
        "('token'," * 20_000,
        "login " * 40_000,
        "--user " * 30_000,
        "-u a:" * 40_000,
        "MIIE\n" * 50_000 + "-----END X-----\n" * 5_000,
        "a_" * 100_000,
    ],
    ids=[
        "jwt",
        "name",
        "url",
        "pem",
        "scheme",
        "quote",
        "dash",
        "variable",
        "login",
        "pair",
        "netrc",
        "user",
        "u",
        "end",
        "low",
    ],
)
def test_a_hostile_log_is_read_in_no_more_time_than_another(text: str) -> None:
    began = time.process_time()
    Redactor(["very-private-value"]).text(text)
    assert time.process_time() - began < 20.0


def test_many_values_are_looked_for_in_no_more_time_than_few() -> None:
    redactor = Redactor([f"ordinary-value-{index:05}" for index in range(20_000)] + ["hunter2hunter2"])
    began = time.process_time()
    redactor.text("step 1200 loss 2.5 ordinary-value none\n" * 2_500)
    assert time.process_time() - began < 20.0
