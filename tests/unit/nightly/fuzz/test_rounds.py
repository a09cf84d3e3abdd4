"""Rounds of mutated inputs beside a healthy job: twelve fixed ones, and FUZZ_SECONDS of new ones (MUSTER_SEED repeats
one)."""

import itertools
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fuzz import inputs, samples
from fuzz.__main__ import main
from fuzz.draw import drawn
from fuzz.inputs import KINDS, REPORT, Input, Round, RoundError, Sender
from fuzz.play import Outcome, play
from fuzz.shrink import rule_in, shrunk
from muster.controller.reconciler import Reconciler
from muster.coordinator import endpoints
from muster.kube import decode
from muster.world.views import INDEX_LABEL, JOB_UID_LABEL
from simulate.apiserver import training_job

SECONDS = float(os.environ.get("FUZZ_SECONDS", "300"))
ROUNDS = 12
FOUND = sorted((Path(__file__).parent / "found").glob("*.json"))
# Benches tell what it is; here only that it is not another order.
FAR_TOO_MUCH = 20.0


def explained(outcome: Outcome) -> str:
    return "\n".join([*outcome.tail[-60:], f"make fuzz SEED={outcome.told.seed}: {outcome.failure}"])


def test_rounds() -> None:
    assert holds(play(drawn(seed)) for seed in range(1, 1 + ROUNDS)) > 100 * ROUNDS


def test_new_rounds(record_property: Callable[[str, object], None]) -> None:
    first, until = int(os.environ.get("MUSTER_SEED") or time.time_ns() // 1000), time.monotonic() + SECONDS
    record_property("seed", first)
    holds(play(drawn(seed)) for seed in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count(first)))


def holds(outcomes: Iterable[Outcome]) -> int:
    """Nothing fails in any of them; how many mutated inputs came."""
    come = 0
    for outcome in outcomes:
        assert not outcome.failure, explained(outcome)
        come += sum(outcome.inputs.values())
        assert max(outcome.beside.deciding) < FAR_TOO_MUCH * max(outcome.alone.deciding), f"SEED={outcome.told.seed}"
    return come


@pytest.mark.parametrize("path", FOUND, ids=[path.stem for path in FOUND])
def test_what_was_found_once_stays_mended(path: Path) -> None:
    outcome = play(inputs.read(path))
    assert not outcome.failure, explained(outcome)


def test_the_same_round_ends_the_same() -> None:
    one, other = play(soon()), play(soon())
    assert not one.failure
    assert (one.inputs, one.understood) == (other.inputs, other.understood)
    assert (one.alone.decided, one.beside.decided) == (other.alone.decided, other.beside.decided)


def soon(*added: Input) -> Round:
    """Some of a round, all of it within some seconds, and what is added."""
    others = [replace(one, at=one.at / 20) for one in drawn(1).inputs if one.kind in ("Pod", REPORT)][:12]
    return Round(1, [*others, *added])


def test_a_defect_in_reading_is_found_and_told_by_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted one: a label that should be a number, and is none, ends the stream of all pods."""
    monkeypatch.setattr(decode, "_label_number", lambda value, default: default if value is None else int(value))
    metadata = {**samples.OCCUPANT["metadata"], "labels": {JOB_UID_LABEL: "u", INDEX_LABEL: "a"}}
    outcome = play(soon(Input(2.5, "Pod", {**samples.OCCUPANT, "metadata": metadata})))
    assert "informer interrupted" in outcome.failure
    smallest = shrunk(outcome, most_plays=20)
    assert [one.kind for one in smallest.told.inputs] == ["Pod"]
    left = smallest.told.inputs[0].document
    assert left["metadata"]["labels"][INDEX_LABEL] == "a"
    assert len(str(left)) < len(str(samples.OCCUPANT))
    assert rule_in(smallest.failure) == rule_in(outcome.failure)


def test_a_defect_at_the_door_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(data: bytes) -> Any:
        report = shipped(data)
        if any(rank.rank > 100 for rank in report.ranks):
            raise KeyError(report.ranks[0].rank)
        return report

    shipped = endpoints.decode_report
    monkeypatch.setattr(endpoints, "decode_report", careless)
    family = next(family for family in samples.families() if family.gang and family.reports).settled_as(0)
    objects = [("TrainingJob", family.job), ("Gang", family.gang), *(("Pod", pod) for pod in family.pods)]
    pod = next(pod for pod in family.pods if pod["metadata"]["uid"] in family.reports)
    sender = Sender(*(pod["metadata"][name] for name in ("namespace", "name", "uid")), pod["spec"]["nodeName"])
    ranks = [{"rank": 101, "localRank": 0, "alive": True}]
    bad = Input(4.0, REPORT, {"sequence": 10**6, "state": "Running", "ranks": ranks}, sender=sender)
    outcome = play(Round(1, [*(Input(1.0, kind, value, mutated=False) for kind, value in objects), bad]))
    assert outcome.failure.startswith("KeyError in ")
    assert "a report could not be answered" in outcome.failure


def test_a_job_that_is_not_decided_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    readable = Reconciler._readable

    def shy(self: Reconciler, key: tuple[str, str]) -> Any:
        strange = any(isinstance(job, decode.Undecodable) for job in self._cluster.jobs.store.values())
        return None if strange else readable(self, key)

    monkeypatch.setattr(Reconciler, "_readable", shy)
    strange = training_job("strange", "elsewhere", {"nodes": "many"})
    strange["metadata"]["uid"] = "u"
    outcome = play(Round(1, [Input(3.0, "TrainingJob", strange), Input(8.0, "TrainingJob", strange)]))
    assert "the healthy job is decided" in outcome.failure


def test_a_round_is_kept_and_read_again(tmp_path: Path) -> None:
    told = drawn(11)
    path = tmp_path / "one.json"
    inputs.write(path, told, "a rule: broken")
    assert inputs.read(path) == Round(told.seed, told.inputs)
    path.write_text(path.read_text().replace('"kind": "Report"', '"kind": "Rumour"', 1))
    with pytest.raises(RoundError, match=rf"kind is 'Rumour'; there are {KINDS[0]}"):
        inputs.read(path)
    with pytest.raises(RoundError, match="holds no round"):
        inputs.read(tmp_path / "none.json")


def test_a_run_writes_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["--seed", "3", "--inputs", "1"]) == 0
    figures = (tmp_path / "build/bench/fuzz.json").read_text()
    assert '"failures": {}' in figures
    assert '"healthy_job_deciding_cpu"' in figures
