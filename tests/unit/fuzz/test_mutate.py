"""Mutations: the same from the same seed, strange, and within what an API server guarantees."""

import json
from random import Random
from typing import Any

import msgspec
import pytest
from tests.unit.fuzz.readable import SAMPLES, stays_readable

from fuzz import samples, wire
from fuzz.inputs import KINDS, RESOURCES
from fuzz.mutate import mutated, mutated_bytes


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_every_object_has_stays_readable(sample: dict[str, Any]) -> None:
    """Three hundred mutations of each: tests/unit/nightly/fuzz/test_mutate.py."""
    stays_readable(sample, 60)


def test_a_sample_itself_stays_as_it_is() -> None:
    before = msgspec.json.encode(samples.JOB_SPEC)
    for seed in range(100):
        mutated({"spec": samples.JOB_SPEC}, Random(seed))
    assert msgspec.json.encode(samples.JOB_SPEC) == before


def test_bytes_are_changed_and_not_without_end() -> None:
    data = b'POST / HTTP/1.1\r\n\r\n{"a":1}'
    found = {mutated_bytes(data, Random(seed)) for seed in range(200)}
    assert len(found) > 150
    assert max(map(len, found)) < 1_000_000


def test_what_python_cannot_write_gets_into_the_bytes() -> None:
    document = {
        "deep": wire.nested(4000),
        "number": wire.literal("1e400"),
        "half": wire.escaped("d800"),
        "long": wire.repeated("ab ", 3),
    }
    data = wire.encode(document)
    assert data.count(b"{") == 4001
    assert b'"number":1e400,' in data
    assert b'"half":"\\ud800"' in data
    assert b'"long":"ab ab ab "' in data
    assert json.dumps(document)  # as it is kept in a file


def test_every_kind_has_its_place() -> None:
    assert set(RESOURCES) < set(KINDS)
