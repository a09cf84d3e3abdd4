"""Bits of several nodes beside each other: who errs always alike is found by those who do not."""

from dataclasses import replace

import pytest

from muster.preflight import single_node
from muster.preflight.outcomes import BurnInMember, How, LocalOutcome
from muster.preflight.own_tests import evaluate_own_tests
from muster.protocol.checks import NODE, CheckAnswer, CheckReport, ProbeReport
from muster.world.checks import CheckerView, ProbeThreshold

Prints = dict[str, str]
PLAIN = CheckReport(1, library="torch 2.9", version="1")


def compared(prints: Prints, reports: dict[str, CheckReport] | None = None, wrong: str = "") -> list[LocalOutcome]:
    checkers = {node: CheckerView(0.5, (reports or {}).get(node, PLAIN)) for node in prints}
    told = [
        LocalOutcome(node, "bit-exact", How.RESULT, wrong=node == wrong, fingerprint=fingerprint)
        for node, fingerprint in prints.items()
    ]
    return single_node.with_wrong_bits(told, checkers)


def blamed(found: list[LocalOutcome]) -> dict[str, str]:
    return {each.node: each.message for each in found if each.wrong}


def test_who_has_other_bits_than_the_others_of_its_kind_is_wrong() -> None:
    found = compared({"n0": "k:a", "n1": "k:a", "n2": "k:b", "n3": "k:a"})
    assert blamed(found) == {"n2": "other bits than 3 of 4 nodes of its kind"}
    assert [each.node for each in found] == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("prints", "reports"),
    [
        ({"n0": "k:a", "n1": "k:a"}, {}),
        ({"n0": "k:a", "n1": "k:a", "n2": "other:b"}, {}),
        ({"n0": "k:a", "n1": "k:a", "n2": "k:b"}, {"n2": replace(PLAIN, library="torch 3.0")}),
        ({"n0": "k:a", "n1": "k:a", "n2": "k:b"}, {"n2": replace(PLAIN, version="2")}),
        ({"n0": "k:a", "n1": "k:a", "n2": ""}, {}),
        ({"n0": "a", "n1": "a", "n2": "b"}, {}),
        ({"n0": "k:a"}, {}),
        ({}, {}),
    ],
    ids=[
        "equal",
        "another kind",
        "another library",
        "other probes",
        "an old checker",
        "no kind",
        "alone",
        "nobody",
    ],
)
def test_nobody_is_wrong_who_owes_the_others_nothing(prints: Prints, reports: dict[str, CheckReport]) -> None:
    found = compared(prints, reports)
    assert not blamed(found)
    assert {each.how for each in found} <= {How.RESULT}


@pytest.mark.parametrize("bits", ["ab", "aabb", "abc"])
def test_without_a_majority_nobody_is_blamed_and_nothing_is_said_of_any(bits: str) -> None:
    found = compared({f"n{index}": f"k:{letter}" for index, letter in enumerate(bits)})
    assert not blamed(found)
    assert {each.how for each in found} == {How.ENVIRONMENT}
    assert "no majority shows which are wrong" in found[0].message


def test_who_does_not_agree_with_itself_has_no_voice() -> None:
    found = compared({"n0": "k:a", "n1": "k:a", "n2": "k:b"}, wrong="n2")
    assert list(blamed(found)) == ["n2"]
    assert found[2].message == ""


def test_it_is_a_failure_of_the_node_by_its_result() -> None:
    found = compared({"n0": "k:a", "n1": "k:a", "n2": "k:b"})
    own = evaluate_own_tests([BurnInMember(name) for name in ("n0", "n1", "n2")], found, {})
    (fail,), broken = own.failed, list(own.broken)
    assert (fail.node, fail.probe, fail.wrong, broken) == ("n2", "bit-exact", True, [])


def test_a_limit_of_another_version_of_the_probes_judges_nobody_else() -> None:
    def view(version: str) -> CheckerView:
        return CheckerView(0.0, CheckReport(1, model="NVIDIA H200", library="nccl-2", version=version))

    def threshold(version: str, middle: float) -> ProbeThreshold:
        return ProbeThreshold(
            "gemm-bf16", "NVIDIA H200", "", "nccl-2", version, middle, 0.9, 0.0, 0.01, "TFLOP/s", version
        )

    outcomes = [LocalOutcome(node, "gemm-bf16", How.RESULT, 600.0) for node in ("n1", "n2", "n3")]
    views = {"n1": view("1"), "n2": view("1"), "n3": view("2")}
    by_name, found = single_node.with_thresholds(outcomes, views, [threshold("1", 600.0), threshold("2", 1000.0)])
    assert [by_name[each.probe].least for each in found] == [540.0, 540.0, 900.0]


LATE = CheckAnswer(
    "o",
    NODE,
    "Late",
    probes=(
        ProbeReport("gemm-bf16", "Result", 600.0, "TFLOP/s"),
        ProbeReport("bit-exact", "Late", message="it was still running when the profile's 30 s were over"),
        ProbeReport("storage", "Late", message="the profile's 30 s are over"),
    ),
)
ONLY_STORAGE = replace(LATE, probes=(LATE.probes[0], LATE.probes[2]))


@pytest.mark.parametrize(
    ("answer", "probe", "words"),
    [
        (LATE, "profile", "bit-exact: it was still running when the profile's 30 s were over (and 1 more)"),
        (ONLY_STORAGE, "storage", "storage: the profile's 30 s are over"),
        (None, "profile", "its checker has not answered: look at its log (kubectl -n muster-check logs)"),
    ],
)
def test_what_is_late_is_one_outcome(answer: CheckAnswer | None, probe: str, words: str) -> None:
    (late,) = [each for each in single_node.outcomes_of_answer("n0", answer) if each.how is How.LATE]
    assert (late.probe, late.message) == (probe, words)
    assert not single_node.ended_in_time("n0", answer)


@pytest.mark.parametrize(
    ("in_time", "how", "words"),
    [
        ((), How.ENVIRONMENT, "no other node that could be compared with it was in time"),
        (("n0",), How.ENVIRONMENT, "no other node that could be compared with it was in time"),
        (("n1",), How.LATE, "; n1 was in time"),
        (("n0", "n2", "n1"), How.LATE, "; n1, n2 were in time"),
    ],
)
def test_being_late_says_something_beside_others_that_were_in_time(
    in_time: tuple[str, ...], how: How, words: str
) -> None:
    well = LocalOutcome("n3", "gemm-bf16", How.RESULT, 600.0)
    late, other = single_node.without_common_delays([*single_node.outcomes_of_answer("n0", None), well], in_time)
    assert (late.node, late.how) == ("n0", how)
    assert late.message.endswith(words)
    assert other == well
    own = evaluate_own_tests([BurnInMember("n0")], [late], {})
    fails, broken = own.failed, list(own.broken)
    assert [fail.node for fail in fails] == (["n0"] if how is How.LATE else [])
    assert broken == ([] if how is How.LATE else ["n0"])
