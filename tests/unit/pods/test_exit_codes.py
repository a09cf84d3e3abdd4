"""Exit codes that a shell's line loses, found without running it, and compared with what bash does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.unit.counting import CountedWork
from tests.unit.status.test_warnings import started_with

from muster.pods.exit_codes import hidden_exit_code, message
from muster.pods.launching import start_text, start_warnings
from muster.protocol.starters import LONGEST_LINE

# The line, by what the code is lost, whose code counts, and the options of `set` that help.
LOST = [
    ("cd . && python3 train.py --crash-at=3 2>&1 | tee log", "pipe", "tee", "-o pipefail"),
    ("torchrun train.py |& tee log", "pipe", "tee", "-o pipefail"),
    ("(python3 train.py) | tee log", "pipe", "tee", "-o pipefail"),
    ("{ echo a; python3 train.py; } 2>&1 | tee -a log", "pipe", "tee", "-o pipefail"),
    ("echo a\ntrue | head\ntorchrun train.py 2>&1 | tee log\n", "pipe", "tee", "-o pipefail"),
    ("set -e; torchrun train.py | tee log; echo done", "pipe", "tee", "-o pipefail"),
    ("torchrun train.py | tee log; echo done", "pipe", "tee", "-eo pipefail"),
    ("time torchrun train.py 2>&1 | tee log", "pipe", "tee", "-o pipefail"),
    ("exec torchrun train.py | tee log", "pipe", "tee", "-o pipefail"),
    ('C="torchrun train.py"; $C | tee log', "pipe", "tee", "-o pipefail"),
    ("for i in 1 2; do true; done; torchrun train.py | tee log", "pipe", "tee", "-o pipefail"),
    ('[ -n "$DEBUG" ] && set -x; torchrun train.py | tee log', "pipe", "tee", "-o pipefail"),
    ('if [ -z "$X" ]; then X=1; fi; torchrun train.py | tee log', "pipe", "tee", "-o pipefail"),
    ("python3 prepare.py && python3 train.py | tee log", "pipe", "tee", "-o pipefail"),
    ("nice -n 1 python3 -u -m foo.train | cat", "pipe", "cat", "-o pipefail"),
    ("bash run.sh 2>&1 | tee log", "pipe", "tee", "-o pipefail"),
    ("torchrun train.py | tee log || exit 1", "pipe", "tee", "-o pipefail"),
    ("torchrun train.py | tee log || { echo failed; exit 1; }", "pipe", "tee", "-o pipefail"),
    ("python3 -m pip install x; python3 main.py | tee log", "pipe", "tee", "-o pipefail"),
    ("torchrun train.py | tee log || true", "or", "true", "-o pipefail"),
    ("python3 train.py || true", "or", "true", ""),
    ("python3 train.py || echo failed", "or", "echo", ""),
    ("python3 train.py; exit 0", "sequence", "exit 0", "-e"),
    ("python3 train.py; echo done", "sequence", "echo", "-e"),
    ("set -e; python3 train.py && echo ok; echo done", "sequence", "echo", ""),
    ("(python3 train.py; echo done) || true", "sequence", "echo", ""),
    ("torchrun train.py; python3 upload.py", "sequence", "python3", "-e"),
    ("python3 train.py & wait", "background", "", ""),
    ("python3 train.py &", "background", "", ""),
    ("torchrun train.py & sleep 0; echo a; wait", "background", "", ""),
    ("if python3 train.py; then echo ok; fi", "if", "", ""),
    ("if ! python3 train.py; then echo failed; fi", "if", "", ""),
    ("if python3 train.py; then exit 0; else echo failed; fi", "if", "", ""),
    ("! python3 train.py", "not", "", ""),
    ("trap 'exit 0' EXIT; python3 train.py", "trap", "", ""),
]
KEPT = [
    "true | python3 train.py",
    "true | head; python3 train.py",
    "python3 train.py > log 2>&1",
    "python3 train.py 2>&1 | tee log; exit ${PIPESTATUS[0]}",
    "python3 train.py 2>&1 | tee log; rc=${PIPESTATUS[0]}; echo $rc; exit $rc",
    "python3 train.py 2>&1 | tee log; test ${PIPESTATUS[0]} -eq 0",
    "set -euo pipefail; python3 train.py | tee log",
    "set -o pipefail && python3 train.py | tee log",
    "set -eo pipefail\ntrue\npython3 train.py | tee log\necho done",
    "shopt -so pipefail; python3 train.py | tee log",
    "(set -o pipefail; python3 train.py | tee log)",
    "[ -z '' ] && set -o pipefail; python3 train.py | tee log",
    "python3 train.py && echo ok",
    "python3 train.py & pid=$!; wait $pid",
    "sleep 0 & python3 train.py & wait $!",
    "sleep 0 & python3 train.py",
    "false || true; python3 train.py",
    "python3 prepare.py || true; python3 train.py",
    "set -e; python3 train.py; python3 plot.py || true",
    'python3 train.py --name "a | tee b" --then "; exit 0"',
    "cat > f <<EOF\npython3 train.py | tee log\nEOF\npython3 train.py",
    "python3 train.py > >(cat) 2>&1",
    "exec > >(cat) 2>&1; python3 train.py",
    "exec python3 train.py",
    "exec python3 train.py; echo done",
    "trap 'exit 0' EXIT; exec python3 train.py",
    "torchrun train.py || true; set -eo pipefail; torchrun train.py | tee log; echo done",
    "if python3 train.py | tee log; then exit 1; fi",
    "! true | tee log | { ! python3 train.py; }",
    "python3 train.py || exit 1",
    "python3 train.py || exit $?",
    "python3 train.py || { echo failed; exit 1; }",
    "torchrun train.py || torchrun train.py --resume",
    "if python3 train.py; then echo ok; else exit 1; fi",
    "if ! python3 train.py; then exit 3; fi",
    "if true; then exec python3 train.py; fi",
    "set -e; python3 train.py; echo done",
    "python3 train.py; code=$?; echo done; exit $code",
    "python3 train.py; [ $? -eq 0 ] || exit 1",
    "python3 train.py; exit $?",
    "trap 'echo bye' EXIT; python3 train.py",
    "trap 'exit 0' TERM; python3 train.py",
]
# Not looked into, or too little is known.
UNCLEAR = [
    "f() { python3 train.py | tee log; }; f",
    "for i in 1 2 3; do python3 train.py && break; done",
    "until python3 train.py; do sleep 5; done",
    "case $X in a) python3 train.py | tee log;; esac",
    "python3 train.py | tee log; grep -q Done log || exit 1",
    "python3 train.py | tee log | grep -q Done",
    "python3 train.py; ./check.sh",
    "python3 prepare_training.py || true; python3 main.py",
    "bash setup.sh || true; /opt/trainer",
    "python3 prepare.py | tee log; python3 main.py",
    "echo $(python3 train.py | tee log)",
    "trap 'exit 1' ERR; python3 train.py | tee log; echo hi",
    "bash -e <<EOF\ntorchrun train.py | tee log\nEOF",
    "python3 train.py | tee log; kill $SIDECAR",
    "echo hi | tee log",
    "python3 -c 'import torch' || true; /opt/trainer",
    "pip install x || true; python3 -m pip install y | tail; /opt/trainer",
    "(" * 40 + "python3 train.py | tee log" + ")" * 40,
    "python3 train.py | tee log #" + "x" * LONGEST_LINE,
    "true;" * 2000 + "python3 train.py | tee log",
    "fi; torchrun train.py | tee log",
    # These lose the code, and are too rare for what it takes to be sure.
    "torchrun train.py | while read l; do echo $l; done",
    "(set -o pipefail; true); torchrun train.py | tee log",
    "set -o pipefail; set +o pipefail; torchrun train.py | tee log",
    "set -e; python3 train.py || { echo failed; sleep 0; }",
    "python3 train.py; echo done; exit $?",
    "torchrun train.py; if [ $? -ne 0 ]; then echo failed; fi",
    "torchrun train.py > >(cat) 2>&1; echo done",
]


@pytest.mark.parametrize(("line", "shape", "by", "options"), LOST)
def test_a_code_that_is_lost_is_found_with_the_shape_and_what_helps(
    line: str, shape: str, by: str, options: str
) -> None:
    found = hidden_exit_code(["bash", "-c", line])
    assert found is not None
    assert (found.shape, found.last_command, found.options) == (shape, by, options)


@pytest.mark.parametrize("line", [*KEPT, *UNCLEAR])
def test_a_code_that_is_kept_or_unclear_gives_no_warning(line: str) -> None:
    assert hidden_exit_code(["bash", "-c", line]) is None


@pytest.fixture
def programs(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds programs that fail, as those that train."""
    for name in ("python3", "torchrun"):
        (tmp_path / name).write_text('#!/bin/sh\ncase "$*" in *prepare*|*upload*) exit 0;; esac\nexit 7\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "run.sh").write_text("exit 7\n")
    return {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}


def code_of(line: str, programs: dict[str, str]) -> int:
    return subprocess.run(
        ["bash", "-c", line], env=programs, cwd=programs["HOME"], check=False, capture_output=True
    ).returncode


def test_bash_ends_as_it_is_thought_to(programs: dict[str, str]) -> None:
    assert [line for line, *_ in LOST if code_of(line, programs) != 0] == []
    assert [line for line in KEPT if code_of(line, programs) == 0] == []


def test_what_is_said_to_help_does(programs: dict[str, str]) -> None:
    found = [(line, hidden_exit_code(["bash", "-c", line])) for line, *_ in LOST]
    remedied = [f"set {each.options}; {line}" for line, each in found if each and each.options and not each.needs_more]
    assert len(remedied) > 20
    assert [line for line in remedied if code_of(line, programs) == 0] == []


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (["bash", "-c"], "Put `set -o pipefail;` in front of the line"),
        (["bash", "-lc"], "Put `set -o pipefail;` in front of the line"),
        (["/usr/bin/env", "zsh", "-c"], "Put `set -o pipefail;` in front of the line"),
        (["sh", "-c"], "Start the line with `bash -o pipefail -c`: not every sh knows pipefail"),
        (["/bin/dash", "-ec"], "Start the line with `bash -o pipefail -c`: not every dash knows pipefail"),
        (["bash", "-o", "pipefail", "-c"], ""),
        (["bash", "-euxo", "pipefail", "-c"], ""),
        (["bash", "--login", "-eo", "pipefail", "-c"], ""),
        (["python3", "-c"], ""),
        (["echo"], ""),
    ],
)
def test_the_remedy_is_one_that_the_shell_knows(command: list[str], remedy: str) -> None:
    found = hidden_exit_code([*command, "torchrun train.py 2>&1 | tee log"])
    assert (message(found) if found else "").endswith(remedy)
    assert (found is None) == (not remedy)


def test_the_warning_says_what_follows_and_holds_no_job() -> None:
    line = "cd /code && python3 train.py --crash-at=3 2>&1 | tee /tmp/log"
    (warned,) = start_warnings(started_with("bash", "-c", line))
    assert (warned.reason, warned.holds) == ("ExitCodeHidden", False)
    assert warned.message == (
        "the shell's line pipes train.py into tee, and goes on with the exit code of tee: each failure of train.py "
        "counts as success, so that the job would be Succeeded and nothing would be restarted. Put `set -o pipefail;` "
        "in front of the line"
    )
    both = "Take `|| true` out, or write `|| exit 1`, and put `set -o pipefail;` in front of the line"
    assert both in start_text(started_with("bash", "-c", "torchrun train.py | tee log || true"))


@pytest.mark.parametrize(
    "unit",
    [
        "torchrun t|",
        "torchrun t||",
        "torchrun t;",
        "torchrun t&",
        "if torchrun t;then ",
        "(",
        "{ ",
        "! ",
        "a >(",
        "a|(",
        "$A ",
        "\"'",
        "set -o x ",
        "A=$A$A;",
    ],
)
def test_a_line_takes_as_much_work_as_it_is_long(unit: str) -> None:
    def steps(chars: int) -> int:
        with CountedWork() as counted:
            hidden_exit_code(["bash", "-c", "torchrun t | cat;" + unit * (chars // len(unit))])
        return counted.steps

    short, long = steps(500), steps(8000)
    assert long < 17 * short
    assert steps(8000) < 100, "it is kept"
