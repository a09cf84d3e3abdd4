"""Manifests with one value changed at random."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from tests.unit.convert.builders import MANIFESTS, objects
from tests.unit.convert.schema import faults, schema

from muster.convert.documents import VERSIONS, convert_objects


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        yield (*path, key)
        yield from places(each, (*path, key))


def assert_that_what_is_changed_comes_out_valid_or_refused(times: int) -> None:
    dice, strange = (
        random.Random(12),
        [None, "", "x", -1, 10**9, True, 1.5, [], {}, [None], {"a": None}, ["$(X)"], "[(*"],
    )
    outcomes = []
    for name in MANIFESTS:
        for _ in range(times):
            given = json.loads(json.dumps(objects(name)))
            *parents, last = dice.choice([place for place in places(given) if len(place) > 1])
            spot: Any = given
            for key in parents:
                spot = spot[key]
            spot[last] = copy.deepcopy(dice.choice(strange))
            for it, found in zip(given, convert_objects(given), strict=True):
                if str(it["kind"]) in VERSIONS:
                    assert found is not None
                if found is not None:  # another system's gang is refused
                    assert bool(found.job) != bool(found.refused)
                    outcomes.append(bool(found.job))
                    assert found.job is None or not list(faults(found.job, schema("trainingjobs"))), (
                        name,
                        parents,
                        last,
                    )
    assert set(outcomes) == {True, False}
