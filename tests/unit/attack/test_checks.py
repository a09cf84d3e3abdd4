from dataclasses import replace

import pytest

from attack.checks import Removal, Thaw, Violation, check_job, check_nodes
from attack.journal import Line, reference

WEIGHTS = reference(1, 30)


def attempt(number: int, since: float, first: int = 0, steps: int = 10, node: str = "node-1") -> list[Line]:
    """One rank, a step a second, and a checkpoint after the last."""
    lines = [Line("start", number, 0, since, node=node), Line("ready", number, 0, since + 0.1, first)]
    last = first + steps
    lines += [
        Line("step", number, 0, since + 1 + step - first, step, weights=WEIGHTS[step])
        for step in range(first + 1, last + 1)
    ]
    return [*lines, Line("checkpoint", number, 0, since + steps + 1.5, last)]


WELL = [*attempt(1, 100.0), *attempt(2, 120.0, first=10), *attempt(4, 140.0, first=20)]


def rules(lines: list[Line], removals: tuple[Removal, ...] = ()) -> set[str]:
    return {found.rule for found in check_job("a", sorted(lines, key=lambda line: line.at), WEIGHTS, removals)}


def test_a_life_as_it_should_be_violates_nothing() -> None:
    assert rules(WELL) == set()


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (Line("checkpoint", 1, 0, 120.5, 10), "ranks of one attempt only do anything"),
        (Line("orphan", 2, 0, 140.5), "ranks of one attempt only do anything"),
        (Line("start", 1, 0, 121.0), "attempts grow"),
        (Line("start", 2, 0, 121.0), "a rank starts once in an attempt"),
        (Line("step", 2, 0, 132.0, 21, weights=WEIGHTS[20]), "every value is right"),
        (Line("done", 4, 0, 160.0, 30, weights=WEIGHTS[29]), "every value is right"),
        (Line("step", 2, 0, 132.0, 25, weights=WEIGHTS[25]), "steps follow each other"),
        (Line("checkpoint", 1, 0, 119.0, 15), "never behind the newest complete checkpoint"),
    ],
)
def test_each_rule_is_seen_to_be_violated(line: Line, rule: str) -> None:
    assert rule in rules([*WELL, line])


def test_a_rank_that_says_that_it_has_lost_its_peers_does_nothing() -> None:
    assert rules([*WELL, Line("lost", 1, 0, 121.0)]) == set()


def test_what_somebody_has_removed_is_not_missed() -> None:
    lines = [*attempt(1, 100.0), *attempt(2, 120.0)]
    assert rules(lines) == {"never behind the newest complete checkpoint"}
    assert rules(lines, (Removal(10, 115.0),)) == set()
    assert rules(lines, (Removal(10, 121.0),)) == {"never behind the newest complete checkpoint"}


def test_what_was_frozen_may_finish_a_thought_but_not_publish() -> None:
    def told(line: Line, node: str = "node-1") -> int:
        lines = sorted([*WELL, line], key=lambda line: line.at)
        return len(check_job("a", lines, WEIGHTS, (), (Thaw(node, 121.0),)))

    assert told(Line("orphan", 1, 0, 121.3)) == 0
    assert told(Line("orphan", 1, 0, 121.3), node="node-2") == 1
    assert told(Line("orphan", 1, 0, 122.3)) == 1
    assert told(Line("orphan", 1, 0, 120.9)) == 1
    assert told(Line("checkpoint", 1, 0, 121.3, 10)) == 1


def test_an_attempt_that_never_loaded_anything_is_behind_nothing() -> None:
    assert rules([*WELL, Line("start", 5, 0, 160.0)]) == set()


def test_a_job_that_has_replaced_one_of_its_name_begins_anew_and_goes_on() -> None:
    first = [*attempt(1, 100.0), *attempt(2, 120.0, first=10)]
    assert rules([*first, *attempt(1001, 140.0, first=20), Line("orphan", 2, 0, 140.5)]) == set()
    assert rules([*first, *attempt(1001, 140.0, first=10)]) == {"never behind the newest complete checkpoint"}
    assert rules([*first, *attempt(1001, 132.0, first=10)]) == set(), "what the first one published last came too late"
    again = [*attempt(1001, 140.0, first=20, steps=5), *attempt(1002, 150.0, first=25, steps=5)]
    assert rules([*first, *again, Line("step", 1001, 0, 151.0, 26, weights=WEIGHTS[26])]) == {
        "ranks of one attempt only do anything"
    }


def test_two_jobs_on_one_node() -> None:
    jobs = {"a": attempt(1, 100.0), "b": attempt(1, 105.0)}
    text = "rank 0 of attempt 1 of b starts on node-1, where rank 0 of attempt 1 of a is alive"
    assert check_nodes(jobs) == [Violation("a node is given to one job", text, 105.0)]
    elsewhere = [replace(line, node="node-2" if line.node else "") for line in jobs["b"]]
    assert check_nodes(jobs | {"b": elsewhere}) == []
    assert check_nodes(jobs | {"b": attempt(1, 112.0)}) == []


def test_the_reference_depends_on_how_many_ranks_there_are() -> None:
    assert reference(2, 5)[5] != reference(3, 5)[5]
    assert reference(2, 5) == reference(2, 8)[:6]
