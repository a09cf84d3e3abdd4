"""What an API server guarantees of a mutated object, whatever has become of the rest."""

from random import Random
from typing import Any

from fuzz import samples, wire
from fuzz.mutate import mutated
from muster.kube import decode

SAMPLES = (samples.NODE, samples.NODE_HEALTH, samples.FLEET_POLICY, samples.OCCUPANT)


def stays_readable(sample: dict[str, Any], rounds: int) -> None:
    """Mutated from so many seeds."""
    changed = 0
    for seed in range(rounds):
        found = mutated(sample, Random(seed), builtin=True)
        changed += found != sample
        named = {**found, "metadata": {**found["metadata"], "resourceVersion": "5"}}
        assert decode.undecodable(wire.encode(named), "x").name == sample["metadata"]["name"]
        assert isinstance(found["spec"], dict)
    assert changed > rounds * 5 / 6
