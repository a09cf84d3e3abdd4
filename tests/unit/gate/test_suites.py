"""`make test` and `make test-all`: what is run, what is kept, and what a second run makes of it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import gate.__main__ as gate
from gate import everything, kept, results
from gate import stage as stages
from gate.parts import PARTS
from gate.stage import NARROWING, Interrupted, Outcome, Stage, report, run, table
from localcluster.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parents[3]
COMMIT = "c0ffee"
Ran = list[tuple[str, Sequence[str], Mapping[str, str]]]


@pytest.fixture(autouse=True)
def _asked_for_whole_suites_by_root(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NARROWING, "CLUSTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MUSTER_CACHE", str(tmp_path))
    monkeypatch.setattr(kept, "clean_commit", lambda: COMMIT)
    monkeypatch.setattr(everything, "_venv", lambda: "/venv")  # it would be made anew in that folder
    return tmp_path


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`ran(fails)`: stages are not run but noted; those named fail, each by one test."""

    def replace(*fails: str) -> Ran:
        noted: Ran = []

        def note(*lanes: Sequence[Stage]) -> list[Outcome]:
            return [outcome for lane in lanes for outcome in note_lane(lane)]

        def note_lane(lane: Sequence[Stage]) -> list[Outcome]:
            outcomes: list[Outcome] = []
            for stage in lane:
                if outcomes and not outcomes[-1].passed:
                    break
                assert stage.has_tests == (stage.name not in ("lint", "verify"))
                noted.append((stage.name, stage.command, stage.environment))
                result = "failed" if stage.name in fails else "passed"
                tests = [{"name": f"{stage.name}::test", "result": result, "seconds": 1.0}]
                outcomes.append(Outcome(stage.name, int(stage.name in fails), 2.0, 3.0, tests))
            return outcomes

        for module in (gate, everything):
            monkeypatch.setattr(module, "run", note)
        monkeypatch.setattr(everything, "call", lambda *_: 0)
        return noted

    return replace


def test_a_green_gate_is_kept_by_commit(cache: Path, ran: Callable[..., Ran]) -> None:
    noted = ran()
    assert gate.main() == 0
    assert [name for name, _, _ in noted] == ["lint", "verify", "e2e", "integration", "unit"]
    found = json.loads((cache / "gate" / f"{COMMIT}.json").read_text())
    assert found["green"] is True
    assert found["failed"] == []
    assert found["stages"]["unit"] == {
        "code": 0, "tests": 1, "skipped": 0, "wallSeconds": 2.0, "cpuSeconds": 3.0, "failed": [], "reran": []
    }  # fmt: skip


def test_a_red_gate_names_the_tests_and_stops(
    cache: Path, ran: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    noted = ran("verify")
    assert gate.main() == 1
    assert [name for name, _, _ in noted] == ["lint", "verify"]
    found = json.loads((cache / "gate" / f"{COMMIT}.json").read_text())
    assert (found["green"], found["failed"]) == (False, ["verify::test"])
    assert "failed: verify::test" in capsys.readouterr().out


@pytest.mark.parametrize("answers", [[None, None], [COMMIT, None], [COMMIT, "another"]])
def test_a_tree_that_is_or_was_edited_is_no_commits_result(
    answers: list[str | None], cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    told = iter(answers)
    monkeypatch.setattr(kept, "clean_commit", lambda: next(told))
    assert gate.main() == 0
    assert not (cache / "gate").exists()


def test_every_part_is_run_after_a_failure_and_only_what_failed_is_run_again(
    cache: Path, ran: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    noted = ran("unit-fuzz")
    assert everything.main([]) == 1
    assert [name for name, _, _ in noted] == [part.name for part in PARTS]
    assert "failed: unit-fuzz::test" in capsys.readouterr().out
    noted = ran()
    assert everything.main([]) == 0
    assert [name for name, _, _ in noted] == ["unit-fuzz"]
    noted = ran()
    assert everything.main(["--again"]) == 0
    assert len(noted) == len(PARTS)


def test_a_part_during_which_the_tree_is_edited_is_no_commits_result(
    cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    answers = iter([COMMIT, COMMIT, *[None] * len(PARTS)])
    monkeypatch.setattr(kept, "clean_commit", lambda: next(answers))
    assert everything.main([]) == 0
    assert [path.name for path in (cache / "test-all" / COMMIT).iterdir()] == ["lint.json"]
    assert len(list((cache / "test-all" / "not-clean").iterdir())) == len(PARTS) - 1


def test_results_are_kept_with_the_seed_that_was_drawn(cache: Path, ran: Callable[..., Ran]) -> None:
    ((_, command, environment),) = _run_part(ran, "unit-lives")
    found = json.loads((cache / "test-all" / COMMIT / "unit-lives.json").read_text())
    assert found["results"] == [{"name": "unit-lives::test", "result": "passed", "seconds": 1.0}]
    assert environment["MUSTER_SEED"] == str(found["seed"])
    assert f"--hypothesis-seed={found['seed']}" in command


@pytest.mark.parametrize(
    ("name", "built"), [("unit-large", False), ("integration-controller", True), ("e2e-localcluster", True)]
)
def test_what_a_part_needs_is_built_outside_of_its_tests_and_their_time_limit(
    name: str, built: bool, cache: Path, ran: Callable[..., Ran]
) -> None:
    ((_, command, _),) = _run_part(ran, name)
    assert ("make --no-print-directory binaries && " in command[-1]) == built


@pytest.mark.parametrize(("name", "version"), [("integration-kubernetes-1.34", "1.34"), ("integration-parts", None)])
def test_a_part_may_have_another_api_server(
    name: str, version: str | None, cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ((_, command, environment),) = _run_part(ran, name)
    assert environment.get("API_SERVER") == version
    assert "make --no-print-directory binaries && " in command[-1], "which builds it"


@pytest.mark.parametrize("end", [0, 1, KeyboardInterrupt])
def test_a_part_with_nodes_takes_its_cluster_down_whatever_happens(
    end: int | type[BaseException],
    cache: Path,
    ran: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ran()
    events: list[str] = []

    def part(lane: Sequence[Stage]) -> list[Outcome]:
        (stage,) = lane
        assert stage.environment["CLUSTER_NAME"] == "nightly"
        assert "localcluster up --name nightly --nodes 4" in stage.command[-1]
        events.append("ran")
        if isinstance(end, int):
            return [Outcome(stage.name, end, 2.0, 3.0)]
        raise end

    monkeypatch.setattr(everything, "run", part)
    monkeypatch.setattr(everything, "call", lambda command, _: events.append(" ".join(command[2:])))
    assert everything.main(["--part", "e2e-faults"]) == (end if isinstance(end, int) else 130)
    assert events == ["ran", "localcluster down --name nightly"]
    assert ("Interrupted in e2e-faults" in capsys.readouterr().out) == (end is KeyboardInterrupt)


def test_a_suite_that_is_interrupted_shows_and_keeps_what_has_ended(
    cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, ended in ((gate, []), (everything, ["lint.json", "verify.json"])):
        ran()
        whole: Callable[..., list[Outcome]] = module.run

        def interrupted(*lanes: Sequence[Stage], whole: Callable[..., list[Outcome]] = whole) -> list[Outcome]:
            if "unit" in [stage.name for lane in lanes for stage in lane]:
                raise Interrupted([])
            return whole(*lanes)

        monkeypatch.setattr(module, "run", interrupted)
        assert module.main(*([[]] if module is everything else [])) == 130
        printed = capsys.readouterr().out
        assert f"Interrupted{': e2e, integration, unit did' if module is gate else ' in unit'}" in printed
        assert [line.split()[:2] for line in printed.splitlines() if " passed " in line][-2:] == [
            ["lint", "passed"],
            ["verify", "passed"],
        ]
        assert sorted(path.name for path in cache.rglob("*.json")) == ended


@pytest.mark.parametrize("suite", [gate.main, lambda: everything.main([])], ids=["gate", "everything"])
@pytest.mark.parametrize("narrowed", [{"T": "tests/unit/gate"}, {"K": "order"}, {"CLUSTER": ""}])
def test_a_suite_refuses_what_it_cannot_do_whole(
    suite: Callable[[], int],
    narrowed: dict[str, str],
    cache: Path,
    ran: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    noted = ran()
    for name, value in narrowed.items():
        monkeypatch.setenv(name, value)
    if "CLUSTER" in narrowed:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert suite() == 2
    assert noted == []
    assert ("need root" if "CLUSTER" in narrowed else "make test-unit T=") in capsys.readouterr().err


def test_without_root_parts_without_a_cluster_run(
    cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert len(_run_part(ran, "unit-fuzz")) == 1
    monkeypatch.setenv("CLUSTER", "existing")
    assert gate.main() == 0


def test_a_failed_test_makes_a_stage_red_although_its_command_does_not(
    cache: Path, ran: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    test = {"name": "a", "result": "failed", "seconds": 1.0}
    for module in (gate, everything):
        monkeypatch.setattr(module, "run", lambda lane, *_: [Outcome(s.name, 0, 2.0, 3.0, [test]) for s in lane])
    assert gate.main() == 1
    assert json.loads((cache / "gate" / f"{COMMIT}.json").read_text())["green"] is False
    assert everything.main(["--part", "unit"]) == 1
    noted = ran()
    assert everything.main([]) == 0
    assert "unit" in [name for name, _, _ in noted]


def test_a_result_that_cannot_be_kept_is_said_and_fails_nothing(
    cache: Path, ran: Callable[..., Ran], capsys: pytest.CaptureFixture[str]
) -> None:
    ran()
    (cache / "gate").write_text("a file")
    assert gate.main() == 0
    assert "could not be kept" in capsys.readouterr().out


def test_a_whole_part_is_run_with_its_workers_and_marks(cache: Path, ran: Callable[..., Ran]) -> None:
    ((_, command, environment),) = _run_part(ran, "unit-drawn")
    assert command[1:-2] == [
        *("-m", "pytest", "-p", "gate.results", "-q", "tests/unit", "-m", "hypothesis"),
        *("--ignore=tests/unit/nightly", "--dist", "worksteal", "-n", "2"),
    ]
    assert command[-2:] == [f"--hypothesis-seed={environment['MUSTER_SEED']}", "--hypothesis-profile=nightly"]
    assert environment["PYTHONHASHSEED"] == "0"


@pytest.mark.parametrize("level", ["unit", "integration", "e2e"])
def test_a_level_of_the_gate_leaves_its_nightly_folder_out(level: str) -> None:
    (planned,) = [line for line in _planned(f"test-{level}") if "pytest" in line]
    assert [word for word in planned.split() if word.startswith("tests/")] == [f"tests/{level}"]
    assert f"--ignore=tests/{level}/nightly" in planned.split()
    assert (ROOT / "tests" / level / "nightly").is_dir()


def test_the_name_of_a_part_may_have_spaces_and_quotes() -> None:
    test, words = "tests/unit/test_it.py::test_all[it's so]", "so and not 'it'"
    (planned,) = [line for line in _planned("test-unit", f"T={test}", f"K={words}") if "pytest" in line]
    assert shlex.split(planned)[-3:] == ["-k", words, test]


def _planned(*arguments: str) -> list[str]:
    """What make would run."""
    done = subprocess.run(["make", "-n", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _git(*arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments], cwd=kept.ROOT, check=True
    )


def test_only_a_clean_tree_has_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:  # a hook's
        monkeypatch.delenv(name)
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    assert kept.clean_commit() is None
    _git("init", "--quiet")
    assert kept.clean_commit() is None
    _git("config", "status.showUntrackedFiles", "no")
    (tmp_path / "file").write_text("one")
    (tmp_path / ".gitignore").write_text("ignored\n")
    _git("add", ".")
    _git("commit", "--quiet", "--message=one")
    commit = kept.clean_commit()
    assert commit is not None
    assert len(commit) >= 40
    (tmp_path / "ignored").write_text("")
    assert kept.clean_commit() == commit
    (tmp_path / "untracked").write_text("")
    assert kept.clean_commit() is None
    (tmp_path / "untracked").unlink()
    (tmp_path / "file").write_text("two")
    assert kept.clean_commit() is None
    _git("commit", "--quiet", "--all", "--message=two")
    assert kept.clean_commit() not in (None, commit)
    (tmp_path / ".git" / "index").write_text("broken")  # the commit is known, the state of the tree is not
    assert kept.clean_commit() is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert kept.clean_commit() is None


def _run_part(ran: Callable[..., Ran], name: str) -> Ran:
    noted = ran()
    assert everything.main(["--part", name]) == 0
    return noted


def test_the_oldest_part_is_the_one_that_no_commit_has_run_for_longest(cache: Path, ran: Callable[..., Ran]) -> None:
    ran()
    everything.main([])
    for number, part in enumerate(PARTS):
        os.utime(cache / "test-all" / COMMIT / f"{part.name}.json", (1000.0 + number, 1000.0 + number))
    (cache / "test-all" / "another").mkdir()
    (cache / "test-all" / COMMIT / f"{PARTS[0].name}.json").rename(cache / "test-all" / "another" / "lint.json")
    os.utime(cache / "test-all" / "another" / "lint.json", (5000.0, 5000.0))
    ((name, _, _),) = _run_part(ran, "oldest")
    assert name == PARTS[1].name
    (cache / "test-all" / COMMIT / f"{PARTS[7].name}.json").unlink()  # never run
    ((name, _, _),) = _run_part(ran, "oldest")
    assert name == PARTS[7].name


def test_a_part_that_does_not_exist_is_refused_with_those_that_do(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        everything.main(["--part", "e2e-fault"])
    told = capsys.readouterr().err
    assert "PART=e2e-fault: no such part" in told
    assert "e2e-faults" in told


def test_each_nightly_test_belongs_to_one_part() -> None:
    files = [path for level in ("unit", "integration", "e2e") for path in _tests(ROOT / "tests" / level / "nightly")]
    assert len(files) > 20
    named = [ROOT / path for part in PARTS for path in part.tests if "nightly" in path]
    assert [path for path in named if not path.exists()] == []
    assert {
        path: owners for path in files if len(owners := [n for n in named if n in (path, *path.parents)]) != 1
    } == {}


def _tests(folder: Path) -> list[Path]:
    return list(folder.rglob("test_*.py"))


def test_a_stage_tells_what_its_processes_took_and_that_it_failed_without_a_test(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\nraise SystemExit(3)"
    idle, outcome = run([Stage("idles", ["true"])], [Stage("burns", [sys.executable, "-c", burn])])
    assert (idle.passed, outcome.code) == (True, 3)
    assert idle.cpu_seconds < 0.3
    assert outcome.cpu_seconds >= 0.3
    assert outcome.failed == ["burns"]
    assert outcome.tests == []


def test_a_lane_goes_on_after_a_stage_that_passed_and_ends_with_one_that_failed(tmp_path: Path) -> None:
    def stage(name: str, code: int) -> Stage:
        script = f"open({str(tmp_path / 'order')!r}, 'a').write({name!r} + ' '); raise SystemExit({code})"
        return Stage(name, [sys.executable, "-c", script])

    outcomes = run([stage("one", 0), stage("two", 1), stage("never", 0)])
    assert [(outcome.name, outcome.code) for outcome in outcomes] == [("one", 0), ("two", 1)]
    assert (tmp_path / "order").read_text().split() == ["one", "two"]


@pytest.mark.parametrize("has_tests", [False, True], ids=["by its command", "by tests that did not run"])
def test_no_stage_begins_after_one_of_another_lane_has_failed(
    has_tests: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first lane's stage waits until the gate knows that the other lane's has ended."""
    os.mkfifo(tmp_path / "ended")
    outcome_of = stages._outcome

    def outcome(ended: Stage, command: stages._Command) -> Outcome:
        found = outcome_of(ended, command)
        if ended.name == "fails":
            (tmp_path / "ended").write_text("")
        return found

    monkeypatch.setattr(stages, "_outcome", outcome)
    waits = Stage("waits", ["cat", str(tmp_path / "ended")])
    fails = Stage("fails", ["sh", "-c", f"exit {int(not has_tests)}"], has_tests=has_tests)
    after = Stage("after", ["sh", "-c", f": > {tmp_path / 'begun'}"])
    assert [(outcome.name, outcome.passed) for outcome in run([waits, after], [fails])] == [
        ("waits", True),
        ("fails", False),
    ]
    assert not (tmp_path / "begun").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take niceness back")
def test_a_second_lane_steps_back_until_the_first_has_ended(tmp_path: Path) -> None:
    """The first lane ends when the second has told its niceness, and the second when it has less.

    The gate that runs this test may change its niceness meanwhile.
    """
    os.mkfifo(tmp_path / "told")
    script = f"""
import os, time
at_first, until = os.nice(0), time.monotonic() + {PATIENCE_SECONDS}
open({str(tmp_path / "told")!r}, "w").write(str(at_first))
while os.nice(0) >= at_first and time.monotonic() < until: time.sleep(0.01)
raise SystemExit(os.nice(0) >= at_first)
"""
    first = Stage("first", ["sh", "-c", f"cat {tmp_path / 'told'} > {tmp_path / 'niceness'}"])
    outcomes = run([first], [Stage("second", [sys.executable, "-c", script])])
    assert [outcome.passed for outcome in outcomes] == [True, True]
    assert int((tmp_path / "niceness").read_text()) > os.nice(0)


def test_an_interrupt_begins_nothing_and_what_had_ended_is_known(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
from gate.stage import Interrupted, Stage, run, take_signals
take_signals()
stage = "trap 'exit 0' INT; kill -TERM $PPID; while :; do sleep 0.1; done"
try:
    waits, after = Stage("waits", ["sh", "-c", stage]), Stage("after", ["touch", {str(tmp_path / "begun")!r}])
    run([Stage("ended", ["true"]), waits, after])
except Interrupted as interrupted:
    print([outcome.name for outcome in interrupted.outcomes])
"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, start_new_session=True
    )
    assert done.stdout.splitlines()[-1:] == ["['ended']"], done.stderr
    assert not (tmp_path / "begun").exists()


def test_a_stage_has_its_own_variables_and_none_that_narrow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NARROWING:
        monkeypatch.setenv(name, "narrowed")
    monkeypatch.setenv("OURS", "ours")
    file = tmp_path / "environment"
    script = f"import json, os; open({str(file)!r}, 'w').write(json.dumps(dict(os.environ)))"
    (outcome,) = run([Stage("echoes", [sys.executable, "-c", script], {"THE_PARTS": "own"})])
    assert outcome.passed
    environment = json.loads(file.read_text())
    assert (environment["OURS"], environment["THE_PARTS"]) == ("ours", "own")
    assert set(NARROWING) & set(environment) == set()


@pytest.mark.parametrize("line", ["", '{"name": "a", "resu'], ids=["none", "cut short"])
def test_a_stage_of_tests_without_a_result_is_red(line: str) -> None:
    script = f"import os; open(os.environ[{results.VARIABLE!r}], 'w').write({line!r})"
    command = [sys.executable, "-c", script]
    (without,) = run([Stage("unit", command)])
    assert without.passed
    (empty,) = run([Stage("unit", command, has_tests=True)])
    assert (empty.passed, empty.code, empty.failed) == (False, 5, ["unit"])
    whole = {"name": "a", "result": "skipped", "seconds": 0.1}
    command[-1] = script.replace(repr(line), repr(json.dumps(whole) + "\n" + line))
    (outcome,) = run([Stage("unit", command, has_tests=True)])
    assert (outcome.passed, outcome.tests, outcome.skipped) == (True, [whole], 1)


STAGE = """
import signal, subprocess, sys, time
print("failed", flush=True)
with open(sys.argv[1], "w", buffering=1) as pipe:
    try:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdout=pipe)
        print("ready", file=pipe)
        child.wait()
    except KeyboardInterrupt:
        child.wait()
        print("torn down", file=pipe)
        raise SystemExit(2)
"""
GATE = f"""
import sys
from gate.stage import Stage, run, take_signals
take_signals()
try:
    run(*([Stage(name, [sys.executable, "-c", {STAGE!r}, sys.argv[1]])] for name in sys.argv[2:]))
except KeyboardInterrupt:
    raise SystemExit(130)
"""


@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGTERM]])
@pytest.mark.parametrize("stages", [["e2e"], ["e2e", "unit"]], ids=["one", "two"])
def test_an_interrupt_lets_the_stages_tear_down_and_is_waited_for(
    stages: list[str], numbers: list[signal.Signals], tmp_path: Path
) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tools")}
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        subprocess.Popen(
            [sys.executable, "-c", GATE, str(pipe), *stages], env=environment, start_new_session=True
        ) as process,
        pipe.open() as said,
    ):
        for _ in stages:
            assert said.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
        assert said.read() == "torn down\n" * len(stages)  # and nobody holds the pipe any more
    assert process.returncode == 130


def test_the_table_lists_stages_their_sum_what_ran_again_and_what_failed() -> None:
    one: dict[str, Any] = {"name": "a", "result": "passed", "seconds": 0.1, "reruns": 1}
    other: dict[str, Any] = {"name": "b", "result": "skipped", "seconds": 0.1}
    stages = [Outcome("lint", 0, 10.0, 8.4), Outcome("unit", 1, 20.0, 30.0, [one, other])]
    lines = table(stages, {"unit": "480 s CPU"})
    assert [line.split() for line in lines.splitlines()] == [
        [],
        ["stage", "result", "tests", "skipped", "wall", "s", "cpu", "s", "budget"],
        ["lint", "passed", "-", "-", "10", "8"],
        ["unit", "FAILED", "(1)", "2", "1", "20", "30", "480", "s", "CPU"],
        ["all", "2", "1", "30", "38"],
        [],
        ["run", "again:", "a"],
        ["failed:", "unit"],
    ]


def test_a_report_has_the_three_slowest_tests(capsys: pytest.CaptureFixture[str]) -> None:
    tests = [{"name": f"t{seconds}", "result": "passed", "seconds": float(seconds)} for seconds in (3, 1, 5, 2, 4)]
    report(Outcome("unit", 0, 20.0, 30.0, tests))
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[1:]] == ["t5", "t4", "t3"]
