"""Which pairs a round holds."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.preflight.fabric import (
    THRESHOLDS,
    Rate,
    burned_in,
    dead,
    gang,
    outcome,
    ran,
    slow,
    standing,
    verdict_on,
)

from muster.preflight.evidence import NOTHING_KNOWN, BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember, How, Pair, PairOutcome, Round
from muster.preflight.rounds import FEW, MARGIN, MOST_ROUNDS, MOST_TESTS, SERVES, next_round
from muster.preflight.verdict import Outcome

healthy: Rate = slow()
EXAMPLES = settings().max_examples // 4  # gangs are dear: 7 in the gate, 25 in `make test-all`
fabrics = st.builds(
    gang,
    st.integers(1, 60),
    st.sampled_from([3, 4, 8, 32]),
    st.sampled_from([2, 1000]),
    st.sampled_from([0, 2, 4]),
)


def ragged() -> list[BurnInMember]:
    """A gang of whose members some have no leaf, and some no block."""
    return [replace(each, domains=each.domains[: place % 3]) for place, each in enumerate(gang(40))]


def pairs_of(due: Round | None) -> list[Pair]:
    return [pair for slot in due.slots for pair in slot] if due else []


def domains(members: list[BurnInMember]) -> dict[str, tuple[str, ...]]:
    return {member.name: member.domains for member in members}


@pytest.mark.parametrize("size", [17, 18, 31, 64, 257])
def test_the_first_round_tests_everybody_inside_the_innermost_domain(size: int) -> None:
    members = gang(size, per_leaf=8, nvlink=4)
    where = domains(members)
    due = next_round(members, "uid/1", [])
    assert all(where[pair.a] == where[pair.b] for pair in pairs_of(due))
    alone = {name for name in where if sum(place == where[name] for place in where.values()) == 1}
    assert {name for pair in pairs_of(due) for name in pair[:2]} == set(where) - alone


def test_the_second_round_tests_everybody_at_each_level_further_out() -> None:
    members = gang(96, per_leaf=8, leaves_per_block=3, nvlink=4)
    where = domains(members)
    first = next_round(members, "uid/1", [], THRESHOLDS)
    assert first
    due = next_round(members, "uid/1", ran(first, healthy), THRESHOLDS)
    shared = Counter(
        (name, sum(mine == theirs for mine, theirs in zip(where[pair.a], where[pair.b], strict=True)))
        for pair in pairs_of(due)
        for name in pair[:2]
    )
    assert set(shared) == {(name, level) for name in where for level in range(3)}


def test_suspects_meet_proven_partners_only() -> None:
    members = gang(64)
    rate = slow("n003", "n030", "n031")
    first = next_round(members, "uid/1", [], THRESHOLDS)
    assert first
    outcomes = ran(first, rate)
    missed = {name for each in outcomes if each.gbps < 40 for name in (each.a, each.b)}
    second = next_round(members, "uid/1", outcomes, THRESHOLDS)
    assert all(len(missed & {pair.a, pair.b}) <= 1 for pair in pairs_of(second))
    assert missed <= {pair.a for pair in pairs_of(second) if not pair.both}


@pytest.mark.parametrize(
    ("members", "rounds"),
    [
        pytest.param(gang(1), 0, id="nobody to be tested with"),
        pytest.param(gang(2), 2, id="two"),
        pytest.param(gang(3), 2, id="three"),
        pytest.param(gang(FEW), 2, id="few"),
        pytest.param(gang(FEW + 1), 2, id="odd, one alone in its leaf"),
        pytest.param(gang(257, 32), 2, id="many"),
        pytest.param([BurnInMember(f"n{place}") for place in range(40)], 2, id="no domain known"),
        pytest.param(ragged(), 3, id="some known"),
    ],
)
def test_healthy_gangs_are_done_after_two_rounds(members: list[BurnInMember], rounds: int) -> None:
    outcomes = burned_in(members, healthy)
    assert max((each.round for each in outcomes), default=0) == rounds
    verdict = verdict_on(members, outcomes, THRESHOLDS)
    assert sorted(verdict.passed) == sorted(member.name for member in members)


def test_only_replacements_are_tested_beside_survivors() -> None:
    members = standing(gang(64), but=["n009", "n010"])
    outcomes = burned_in(members, healthy)
    assert len(outcomes) == 4
    assert all(len({"n009", "n010"} & {each.a, each.b}) == 1 for each in outcomes)
    assert {each.round for each in outcomes} == {1, 2}


@pytest.mark.parametrize("size", [3, 4, 64])
def test_without_history_survivors_show_what_a_healthy_pair_reaches(size: int) -> None:
    members = standing(gang(size), but=["n001"])
    outcomes = burned_in(members, slow("n001", rate=0.4), thresholds=NOTHING_KNOWN)
    assert any("n001" not in (each.a, each.b) for each in outcomes if each.round == 1)
    assert [fail.node for fail in verdict_on(members, outcomes).failed] == ["n001"]
    well = burned_in(members, healthy, thresholds=NOTHING_KNOWN)
    assert len(well) <= 4
    assert verdict_on(members, well).outcome is Outcome.PASS


def test_who_has_died_is_not_planned_again_and_the_partner_is() -> None:
    members = gang(40)
    first = next_round(members, "uid/1", [], THRESHOLDS)
    victim = pairs_of(first)[0]
    assert first
    outcomes = [
        PairOutcome(1, each.a, each.b, How.OTHER_ENDED, ended=victim.a) if victim.a in (each.a, each.b) else each
        for each in ran(first, healthy)
    ]
    while (due := next_round(members, "uid/1", outcomes, THRESHOLDS)) is not None:
        assert victim.a not in {name for pair in pairs_of(due) for name in pair[:2]}
        outcomes += ran(due, healthy)
    verdict = verdict_on(members, outcomes, THRESHOLDS)
    assert victim.b in verdict.passed
    assert victim.a not in (*verdict.passed, *verdict.open)
    assert verdict.failed == ()


def test_a_round_ends_though_nobody_tells_of_it() -> None:
    members = gang(40)
    outcomes: list[PairOutcome] = []
    while (due := next_round(members, "uid/1", outcomes, THRESHOLDS)) is not None:
        outcomes += [PairOutcome(due.number, pair.a, pair.b, How.UNHEARD) for pair in pairs_of(due)]
    assert max(each.round for each in outcomes) <= MOST_ROUNDS
    assert verdict_on(members, outcomes, THRESHOLDS).failed == ()


@settings(max_examples=EXAMPLES)
@given(fabrics, st.integers(0, 10**6), st.floats(0, 0.4))
def test_rounds_are_few_and_their_slots_disjoint(members: list[BurnInMember], seed: int, share: float) -> None:
    random = Random(seed)
    bad = [member.name for member in members if random.random() < share]
    outcomes: list[PairOutcome] = []
    before = 0
    while (due := next_round(members, str(seed), outcomes, THRESHOLDS)) is not None:
        assert before < due.number <= MOST_ROUNDS
        before = due.number
        for slot in due.slots:
            names = [name for pair in slot for name in pair[:2]]
            assert len(names) == len(set(names))
        served = Counter(pair.b for pair in pairs_of(due) if not pair.both)
        assert max(served.values(), default=0) <= SERVES + 2 * MARGIN  # repeated links come on top
        assert len(due.slots) <= 4 * (MOST_TESTS + MARGIN)
        keys = [frozenset(pair[:2]) for pair in pairs_of(due)]
        assert len(keys) == len(set(keys))
        outcomes += ran(due, slow(*bad))


@settings(max_examples=EXAMPLES)
@given(fabrics, st.integers(0, 10**6), st.integers(0, 3))
def test_the_order_of_arrival_and_repetition_change_nothing(members: list[BurnInMember], seed: int, bad: int) -> None:
    random = Random(seed)
    rate = dead(*(member.name for member in random.sample(members, min(bad, len(members)))))
    outcomes: list[PairOutcome] = []
    while True:
        shuffled = [each if random.random() < 0.5 else replace(each, a=each.b, b=each.a) for each in outcomes]
        shuffled += [each for each in outcomes if random.random() < 0.3]
        random.shuffle(shuffled)
        due = next_round(random.sample(members, len(members)), "uid/1", shuffled, THRESHOLDS)
        assert due == next_round(members, "uid/1", outcomes, THRESHOLDS)
        assert verdict_on(members, shuffled, THRESHOLDS) == verdict_on(members, outcomes, THRESHOLDS)
        if due is None:
            break
        outcomes += ran(due, rate)


@settings(max_examples=EXAMPLES)
@given(fabrics, st.integers(0, 10**6), st.integers(0, 3))
def test_a_new_leader_goes_on_with_the_same_round(members: list[BurnInMember], seed: int, bad: int) -> None:
    random = Random(seed)
    rate = slow(*(member.name for member in random.sample(members, min(bad, len(members)))))
    whole = burned_in(members, rate)
    outcomes: list[PairOutcome] = []
    while (due := next_round(members, "uid/1", outcomes, THRESHOLDS)) is not None:
        pairs = pairs_of(due)
        some = random.sample(pairs, random.randint(0, len(pairs)))
        outcomes += [outcome(due.number, pair.a, pair.b, rate) for pair in some]
        again = next_round(members, "uid/1", outcomes, THRESHOLDS)
        rest = [pair for pair in pairs if pair not in some]
        if rest:
            assert again is not None
            assert again.number == due.number
            assert sorted(pairs_of(again)) == sorted(rest)
        outcomes += [outcome(due.number, pair.a, pair.b, rate) for pair in rest]
    assert merge_outcomes(outcomes) == merge_outcomes(whole)


@settings(max_examples=EXAMPLES * 2 // 3)
@given(st.integers(20, 90), st.integers(0, 10**6))
def test_outcomes_that_are_lost_or_late_change_no_verdict(size: int, seed: int) -> None:
    random, members = Random(seed), gang(size)
    bad = {member.name for member in random.sample(members, 2)}
    rate = slow(*bad)
    outcomes: list[PairOutcome] = []
    late: list[PairOutcome] = []
    while (due := next_round(members, "uid/1", outcomes, THRESHOLDS)) is not None:
        outcomes += ran(due, rate) + late
        late = [each for each in outcomes if random.random() < 0.03]
        outcomes = [each for each in outcomes if each not in late]
        late = [each for each in late if random.random() < 0.5]
        if due.number == MOST_ROUNDS:
            outcomes, late = outcomes + late, []
            break
    assert {fail.node for fail in verdict_on(members, outcomes, THRESHOLDS).failed} <= bad


@settings(max_examples=2 * EXAMPLES)
@given(fabrics, st.integers(0, 10**6), st.floats(0, 0.9))
def test_nobody_is_blamed_without_two_proven_witnesses(members: list[BurnInMember], seed: int, share: float) -> None:
    random = Random(seed)
    chances = {member.name: random.choice([0.0, share, 1.0]) for member in members}

    def rate(a: str, b: str) -> float | How:
        lucky = random.random() > max(chances[a], chances[b])
        return 1.0 if lucky else random.choice([How.NO_RESULT, How.COULD_NOT_CONNECT, How.OTHER_ENDED, 0.1, 0.6])

    outcomes = burned_in(members, rate)
    verdict = verdict_on(members, outcomes, THRESHOLDS)
    evidence = BurnInEvidence(MemberTopology(members), merge_outcomes(outcomes), THRESHOLDS)
    proven = {members[node].name for level in evidence.proven.values() for node in level}
    for fail in verdict.failed:
        assert len(set(fail.partners) & proven) >= 2
    told = [*(fail.node for fail in verdict.failed), *verdict.passed, *verdict.open]
    assert len(told) == len(set(told))


@pytest.mark.parametrize("first", [True, False])
def test_what_one_end_alone_sees_counts_whoever_is_the_slower(first: bool) -> None:
    """Of packets that are lost on their way to a node its partner counts those that are sent again, and the node
    none."""
    lossy = PairOutcome(1, "a", "b", How.RESULT, gbps=1.0, transport="TCP")
    partner = replace(lossy, gbps=1.2, retransmits=16.0)
    (one,) = merge_outcomes((lossy, partner) if first else (partner, lossy))
    assert (one.gbps, one.retransmits, one.wrong) == (1.0, 16.0, False)
    (other,) = merge_outcomes((replace(lossy, wrong=True), partner))
    assert other.wrong
    (silent,) = merge_outcomes((partner, PairOutcome(1, "a", "b", How.NO_RESULT)))
    assert silent == partner
