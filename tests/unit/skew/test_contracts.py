"""The table of what crosses versions is complete, has tests, and is what the docs show."""

import re
from pathlib import Path

import pytest
from tests.unit.skew.contracts import CONTRACTS, Contract, table

from apidocs.render import RESOURCES
from muster.api.fleethours import CONFIG_MAP
from muster.controller.history import NOTE
from muster.controller.operator import LEASE_NAME

ROOT = Path(__file__).resolve().parents[3]


def test_the_docs_have_the_table() -> None:
    assert table() in (ROOT / "docs/versions.md").read_text()


def test_every_kind_and_object_is_in_it() -> None:
    names = " ".join(it.name for it in CONTRACTS)
    objects = [*(it.model.__name__ for it in RESOURCES), CONFIG_MAP, NOTE, LEASE_NAME]
    assert [name for name in objects if not re.search(rf"\b{name}\b", names)] == []


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda it: it.name)
def test_each_has_tests_that_exist(contract: Contract) -> None:
    assert contract.tests
    for test in contract.tests:
        path, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / "tests/unit" / path).read_text(), test
