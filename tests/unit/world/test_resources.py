"""Quantities as numbers, and what a pod of a template asks for."""

from typing import Any

import pytest

from muster.world.resources import amount, is_extended, template_requests


@pytest.mark.parametrize(
    ("quantity", "want"),
    [("8", 8), ("0", 0), ("1k", 1000), ("2Ki", 2048), ("1500m", 2), ("1e3", 1000), ("1.5", 2), ("1M", 1_000_000)],
)
def test_an_amount_is_a_whole_number_rounded_up(quantity: str, want: int) -> None:
    assert amount("memory", quantity) == want


@pytest.mark.parametrize(("quantity", "want"), [("8", 8000), ("250m", 250), ("0.1", 100), ("1u", 1)])
def test_cpu_counts_in_thousandths(quantity: str, want: int) -> None:
    assert amount("cpu", quantity) == want


@pytest.mark.parametrize("quantity", ["", "eight", "8GiB"])
def test_no_quantity(quantity: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        amount("memory", quantity)


@pytest.mark.parametrize(
    ("name", "want"), [("nvidia.com/gpu", True), ("cpu", False), ("hugepages-2Mi", False), ("kubernetes.io/x", False)]
)
def test_extended_resources_have_a_domain_of_somebody_else(name: str, want: bool) -> None:
    assert is_extended(name) is want


def of(name: str = "c", *, sidecar: bool = False, **requests: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}, **({"restartPolicy": "Always"} if sidecar else {})}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"containers": [of(cpu=2), of(cpu="500m", memory="1Gi")]}, {"cpu": 2500, "memory": 1 << 30}, id="sum"
        ),
        pytest.param({"containers": [of(cpu=1)], "initContainers": [of(cpu=3)]}, {"cpu": 3000}, id="init alone"),
        pytest.param(
            {"containers": [of(cpu=1)], "initContainers": [of(cpu=1, sidecar=True), of(cpu=3)]},
            {"cpu": 4000},
            id="init beside a sidecar",
        ),
        pytest.param({"containers": [of(cpu=1)], "overhead": {"cpu": "100m"}}, {"cpu": 1100}, id="overhead"),
        pytest.param({"containers": [{"resources": {"limits": {"cpu": 2}}}]}, {"cpu": 2000}, id="a limit is a request"),
        pytest.param({"containers": [of(cpu="lots")]}, {}, id="no quantity"),
        pytest.param({"containers": [{"resources": None}, None]}, {}, id="nothing"),
    ],
)
def test_what_a_template_asks_for(spec: dict[str, Any], want: dict[str, int]) -> None:
    assert template_requests(spec) == {"pods": 1, **want}


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        ("9e999999999", 2**63 - 1),
        ("1e30", 2**63 - 1),
        ("9" * 40, 2**63 - 1),
        ("-1e30", -(2**63) + 1),
        ("9Ei", 2**63 - 1),
        ("-5Gi", -5 << 30),
        ("1e-999999999", 1),
    ],
)
def test_what_is_beyond_64_bits_counts_as_the_most(quantity: str, want: int) -> None:
    assert amount("memory", quantity) == want


@pytest.mark.parametrize("quantity", ["NaN", "Infinity", "²", "1e99999999999999999999"])
def test_what_python_takes_for_a_number_is_no_quantity(quantity: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        amount("memory", quantity)
