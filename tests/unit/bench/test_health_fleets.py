"""Fleets that are lived through in several runs."""

import json
from pathlib import Path

import pytest
from bench import health_fleets
from bench.health_fleets import Kept

from simulate.fleets.life import Outcome, Violation, plan
from simulate.fleets.sums import Sum


def lived(seed: int) -> Outcome:
    found = Outcome(plan(seed), healthy_seconds=100.0, healthy_out_seconds=1.5, taken=4, certain=[0.2, float("inf")])
    found.seen.update({"Gsp": 2, "PortFlaps": 1})
    found.returned.update({"Gsp": 1})
    found.violations.append(Violation("budget", "n1", 5.0, "too many", ["a", "b"]))
    return found


def test_what_was_kept_sums_up_to_the_same(tmp_path: Path) -> None:
    file, at_once, later = tmp_path / "kept", Sum(), Sum()
    for seed in (1, 2):
        at_once.add(lived(seed))
        Kept(file).add(lived(seed), 3.0)
    for outcome, _ in Kept(file).fleets.values():
        later.add(outcome)
    assert later == at_once
    assert later.figures() == at_once.figures()


def test_a_fleet_is_kept_once_and_a_line_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    Kept(file).add(lived(1), 3.0)
    with file.open("a") as cut:
        cut.write('{"code": "')
    again, size = Kept(file), file.stat().st_size
    again.add(lived(1), 3.0)
    assert file.stat().st_size == size
    again.add(lived(2), 3.0)
    assert list(Kept(file).fleets) == [1, 2]


def test_what_other_code_lived_through_is_not_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kept"
    Kept(file).add(lived(1), 3.0)
    monkeypatch.setattr(health_fleets, "_code", lambda: "other")
    assert Kept(file).fleets == {}
    assert json.loads(file.read_text())["code"] != "other"


def test_without_a_file_nothing_is_kept() -> None:
    Kept(None).add(lived(1), 3.0)
    assert Kept(None).fleets == {}
