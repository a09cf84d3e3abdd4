"""The launcher's pure parts, and that it is what a user's image can run."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import math
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.datagrams import Datagrams
from muster.node.launcher.environment import RankFiles, SettingsError, rank_environment, settings_from
from muster.node.launcher.host import user_name
from muster.node.launcher.log import Log
from muster.node.launcher.peers import Peers
from muster.node.launcher.progress import ProgressFile, ReportedCorruption, compile_pattern, step_in_line
from muster.node.launcher.reclaim import Process, descendants, kill
from muster.node.launcher.snapshot import RankSnapshot, Snapshot
from muster.protocol.contract import IDENTITY
from muster.protocol.messages import MAX_REPORT_BYTES, RUN, RUNNING, Directive, Peer, decode_report, encode

SOURCE = Path(__file__).parents[3] / "operator" / "muster"
ROOMS = ("node/launcher", "protocol", "node/checkpoint", "node/checkpoint/formats")
FILES = [path for room in ROOMS for path in sorted((SOURCE / room).glob("*.py"))]
SETTINGS = {"MUSTER_COORDINATOR": "https://[fd00::1]:8443", "MUSTER_TOKEN_FILE": "/t", "MUSTER_CA_FILE": "/c"}
RUN_1 = Directive(RUN, attempt=1, node_rank=1, node_count=2, master_address="10.0.0.1", master_port=29401)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_python_3_8_can_read_it_and_it_needs_only_the_standard_library(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module.split(".")[0])
    assert modules <= sys.stdlib_module_names | {"muster"}


def test_settings_are_read():
    settings = settings_from({**SETTINGS, "MUSTER_WORKER_INDEX": "3", "MUSTER_FENCE_SECONDS": "4.5"}, "/muster")
    assert (settings.host, settings.port, settings.server_name) == ("fd00::1", 8443, "fd00::1")
    assert (settings.worker_index, settings.fence_seconds, settings.directory) == (3, 4.5, "/muster")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"MUSTER_COORDINATOR": "http://plain:80"}, "MUSTER_COORDINATOR must look like"),
        ({"MUSTER_COORDINATOR": "https://host:port"}, "MUSTER_COORDINATOR must look like"),
        ({"MUSTER_SCAN_SECONDS": "often"}, "MUSTER_SCAN_SECONDS: a number is expected"),
        ({"MUSTER_RESUME_ARGUMENT": "--load"}, "MUSTER_RESUME_ARGUMENT: a JSON list of words is expected"),
        ({"MUSTER_RESUME_ARGUMENT": "[5]"}, "MUSTER_RESUME_ARGUMENT: a JSON list of words is expected"),
    ],
)
def test_a_malformed_setting_is_named(change, text):
    with pytest.raises(SettingsError, match=text):
        settings_from({**SETTINGS, **change}, "/muster")


def environment(directive, **inherited):
    return rank_environment(inherited, directive, 0, RankFiles.within("/muster/attempt-1", 0))


def test_from_scratch_no_resume_variable_is_set():
    names = environment(RUN_1, MUSTER_RESUME_PATH="/stale", MUSTER_RESUME_STEP="1")
    assert not {"MUSTER_RESUME_PATH", "MUSTER_RESUME_STEP"} & set(names)


@pytest.mark.parametrize(
    ("path", "directory"),
    [
        ("/c/step-40", "/c"),
        ("s3://b/run/step-40", "s3://b/run"),
        ("s3://b/step-40", "s3://b"),
        ("s3://b-40", "s3://b-40"),
    ],
)
def test_where_the_checkpoint_lies_is_a_directory_or_a_url(path, directory):
    names = environment(dataclasses.replace(RUN_1, resume_path=path, resume_step=40), MUSTER_RESUME_DIRECTORY="/stale")
    assert (names["MUSTER_RESUME_PATH"], names["MUSTER_RESUME_DIRECTORY"]) == (path, directory)


def test_what_the_user_has_set_stays():
    names = environment(dataclasses.replace(RUN_1, processes_per_node=2), OMP_NUM_THREADS="8", HOME="/home")
    assert (names["OMP_NUM_THREADS"], names["HOME"]) == ("8", "/home")


@pytest.mark.parametrize("per_node", [1, 2])
def test_how_many_processes_torchrun_starts_is_the_users_choice(per_node):
    directive = dataclasses.replace(RUN_1, processes_per_node=per_node)
    assert environment(directive, PET_NPROC_PER_NODE="8")["PET_NPROC_PER_NODE"] == "8"
    assert environment(directive)["PET_NPROC_PER_NODE"] == str(per_node)


def test_torchrun_starts_a_process_for_each_gpu_that_muster_asked_for():
    assert environment(RUN_1, MUSTER_GPUS_PER_NODE="8")["PET_NPROC_PER_NODE"] == "8"
    assert environment(RUN_1, MUSTER_GPUS_PER_NODE="8", PET_NPROC_PER_NODE="4")["PET_NPROC_PER_NODE"] == "4"
    several = dataclasses.replace(RUN_1, processes_per_node=2)
    assert environment(several, MUSTER_GPUS_PER_NODE="8")["PET_NPROC_PER_NODE"] == "2"


@pytest.mark.parametrize(
    ("command", "local", "world"),
    [
        (["composer", "train.py"], "8", "16"),
        (["composer", "-n", "4", "train.py"], "4", "8"),
        (["composer", "--nproc=x", "train.py"], "1", "2"),
        (["torchrun", "train.py"], "1", "2"),
    ],
)
def test_composer_reads_what_torchrun_only_writes(command, local, world):
    files = RankFiles.within("/muster/attempt-1", 0)
    names = rank_environment({"MUSTER_GPUS_PER_NODE": "8"}, RUN_1, 0, files, command)
    assert (names["LOCAL_WORLD_SIZE"], names["WORLD_SIZE"], names["NODE_RANK"]) == (local, world, "1")


def test_what_is_musters_whatever_the_container_says_is_written_down_once():
    resumed = dataclasses.replace(RUN_1, resume_path="/c/step-1", resume_step=1)
    wrong = dict.fromkeys(IDENTITY, "wrong")
    names = environment(resumed, **wrong)
    assert {name for name in names if names[name] != "wrong"} >= IDENTITY
    theirs = {name: "theirs" for name in names if name not in IDENTITY}
    assert {name: environment(resumed, **theirs)[name] for name in theirs} == theirs


def test_torchruns_other_settings_stay_and_the_gangs_own_do_not():
    chosen = {"PET_MAX_RESTARTS": "3", "PET_RDZV_BACKEND": "static", "PYTHONUNBUFFERED": "", "PYTHONFAULTHANDLER": "0"}
    stale = {"PET_NNODES": "7", "PET_NODE_RANK": "6", "PET_MASTER_ADDR": "elsewhere", "PET_MASTER_PORT": "1"}
    names = environment(RUN_1, **chosen, **stale)
    assert {name: names[name] for name in chosen} == chosen
    assert [names[name] for name in stale] == ["2", "1", "10.0.0.1", "29401"]


def test_threads_are_limited_only_for_several_processes():
    assert "OMP_NUM_THREADS" not in environment(RUN_1)
    assert environment(dataclasses.replace(RUN_1, processes_per_node=2))["OMP_NUM_THREADS"] == "1"


def test_an_ipv6_master_is_bracketed_for_jax():
    names = environment(dataclasses.replace(RUN_1, master_address="fd00::1"))
    assert (names["MASTER_ADDR"], names["JAX_COORDINATOR_ADDRESS"]) == ("fd00::1", "[fd00::1]:29401")
    assert "{JAX_COORDINATOR_IP}:{JAX_COORDINATOR_PORT}".format(**names) == "[fd00::1]:29401", "as MaxText joins them"


def test_a_progress_file_is_read_line_by_line_however_it_is_written(tmp_path):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    assert file.read() == []
    path.write_bytes(b'{"step": 1}\n{"step"')
    assert file.read() == [1]
    with path.open("ab") as stream:
        stream.write(
            b': 2, "loss": 1.5}\n\nnonsense\n{"step": 99999999999999999999}\n{"step": "3"}\n{"step": true}\n{"step": '
            b"-4}\n" + b"[" * 99999 + b"\n"
        )
    assert [file.read(), file.read()] == [[2], []]
    path.write_bytes(b'{"step": 9}\n')  # truncated by the trainer
    assert file.read() == [9]


def test_seconds_that_a_program_tells_of_are_added_up_and_nonsense_is_not(tmp_path):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    lines = [
        '{"step": 0, "inputWaitSeconds": 60}',
        '{"step": 1, "inputWaitSeconds": 120, "communicationSeconds": 3}',
        '{"step": 2, "inputWaitSeconds": 1.5, "checkpointSeconds": 2.5}',
        '{"step": 3, "inputWaitSeconds": NaN, "checkpointSeconds": -1, "communicationSeconds": "much"}',
        '{"step": 4, "inputWaitSeconds": 1e308, "checkpointSeconds": Infinity, "communicationSeconds": true}',
        '{"inputWaitSeconds": 5}',
    ]
    path.write_text("\n".join(lines) + "\n")
    assert file.read() == [0, 1, 2, 3, 4]
    told = {"inputWaitSeconds": 1.5, "checkpointSeconds": 2.5, "communicationSeconds": 0.0}
    assert file.seconds == told, "what the first step waited for belongs to the start"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("99", "no request of that number was made"),
        ("0", "no request of that number was made"),
        ("-1", "request has to be the number of a request"),
        ("2.0", "request has to be the number of a request"),
        ("1e308", "request has to be the number of a request"),
        ("NaN", "request has to be the number of a request"),
        ("true", "request has to be the number of a request"),
        ('"2"', "request has to be the number of a request"),
        ("[2]", "request has to be the number of a request"),
        ("null", "request has to be the number of a request"),
        ("9" * 4000, "request has to be the number of a request"),
    ],
)
def test_only_an_answer_to_a_request_that_was_made_counts(tmp_path, value, why):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    line = f'{{"step": 3, "request": {value}}}'
    path.write_text(line + '\n{"request": 77}\n{"step": 4, "request": 2}\n')
    assert file.read({1, 2}) == [3, 4]
    assert file.answered == 2
    assert file.problem == f"the line {line[:200]} is ignored: {why}"


def test_a_line_that_tells_of_wrong_results_is_no_step(tmp_path):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    path.write_text('{"step": 3}\n{"corruption": "NonFiniteLoss", "foundAt": 24, "lastGood": 20, "step": 24}\n')
    assert file.read() == [3]
    assert file.corruption == ReportedCorruption("NonFiniteLoss", 24, 20)
    assert file.problem == ""


def test_the_line_of_wrong_results_that_reaches_furthest_back_counts(tmp_path):
    """Of ranks that share a file, or of one that looks closer."""
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    for line, counts in (
        ('{"corruption": "NonFiniteLoss"}', ReportedCorruption("NonFiniteLoss")),
        ('{"corruption": "NonFiniteLoss", "foundAt": 24}', ReportedCorruption("NonFiniteLoss", 24)),
        ('{"corruption": "ReplayMismatch", "foundAt": 24, "lastGood": 9}', ReportedCorruption("ReplayMismatch", 24, 9)),
        ('{"corruption": "NonFiniteLoss", "foundAt": 11}', ReportedCorruption("ReplayMismatch", 24, 9)),
        ('{"corruption": "ReplayMismatch"}', ReportedCorruption("ReplayMismatch", 24, 9)),
        ('{"corruption": "NonFiniteLoss", "foundAt": 0}', ReportedCorruption("NonFiniteLoss", 0)),
    ):
        with path.open("a") as stream:
            stream.write(line + "\n")
        file.read()
        assert file.corruption == counts
    assert file.problem == ""


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"corruption": "Bad"}', "corruption has to be one of ReplayMismatch, NonFiniteLoss"),
        ('{"corruption": ["NonFiniteLoss"]}', "corruption has to be one of"),
        ('{"corruption": "NonFiniteLoss", "foundAt": "24"}', "have to be numbers of steps"),
        ('{"corruption": "NonFiniteLoss", "foundAt": 24.5}', "have to be numbers of steps"),
        ('{"corruption": "NonFiniteLoss", "foundAt": -1}', "have to be numbers of steps"),
        ('{"corruption": "NonFiniteLoss", "foundAt": true}', "have to be numbers of steps"),
        ('{"corruption": "NonFiniteLoss", "foundAt": 20, "lastGood": 24}', "lastGood is beyond foundAt"),
    ],
)
def test_a_garbled_line_about_wrong_results_is_ignored_with_a_word(tmp_path, line, why):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    path.write_text(line + "\n")
    assert file.read() == []
    assert file.corruption is None
    assert line in file.problem
    assert why in file.problem


def test_the_rest_is_read_at_the_end_and_not_for_ever(tmp_path):
    path = tmp_path / "progress"
    lines = "".join(f'{{"step": {step}}}\n' for step in range(1, 20_001))
    path.write_text(lines + '{"corruption": "ReplayMismatch"}\n')
    file = ProgressFile(str(path))
    assert file.read_rest() == list(range(1, 20_001))
    assert file.corruption == ReportedCorruption("ReplayMismatch")
    endless = ProgressFile(str(path))
    path.write_text(lines * 10 + '{"corruption": "ReplayMismatch"}\n')
    assert endless.read_rest()
    assert endless.corruption is None


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_directory(path: Path) -> None:
    path.mkdir()


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_suffix(".pipe"))
    path.symlink_to(path.with_suffix(".pipe"))


def a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_link_to_a_file(path: Path) -> None:
    path.with_suffix(".file").write_text('{"step": 7}\n')
    path.symlink_to(path.with_suffix(".file"))


@pytest.mark.parametrize("put", [a_pipe, a_directory, a_link_to_a_pipe, a_link_to_a_device, a_link_to_a_file])
def test_what_is_no_file_is_not_waited_for(tmp_path, put):
    path = tmp_path / "progress"
    put(path)
    file, read = ProgressFile(str(path)), []
    reader = threading.Thread(target=lambda: read.append(file.read()), daemon=True)
    reader.start()
    reader.join(PATIENCE_SECONDS)
    assert read == [[]]
    file.read()
    assert str(path.resolve()) not in opened()


def opened():
    """The files that this process has open; other threads open and close some."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            yield str(descriptor.readlink())


def test_an_endless_line_in_a_progress_file_is_skipped(tmp_path):
    path = tmp_path / "progress"
    file = ProgressFile(str(path))
    path.write_bytes(b"x" * 3_000_000 + b'\n{"step": 5}\n')
    read = [file.read() for _ in range(math.ceil(3_000_100 / 65_536))]
    assert [step for steps in read for step in steps] == [5]


PATTERNS = {
    "found": (r"step (\d+)", b"epoch 1 step 12 loss 3", 12),
    "not there": (r"step (\d+)", b"epoch 1", None),
    "no number": (r"step (\w+)", b"step one", None),
    "beyond any step": (r"step (\d+)", b"step 99999999999999999999", None),
    "group left out": (r"step(\d+)?", b"step", None),
    "not text": (r"step (\d+)", b"\xff\xfe step 3 \x00", 3),
}


@pytest.mark.parametrize(("pattern", "line", "step"), PATTERNS.values(), ids=PATTERNS.keys())
def test_steps_in_the_output(pattern, line, step):
    assert step_in_line(compile_pattern(pattern), line) == step


@pytest.mark.parametrize(
    "pattern", ["step (", r"step \d+", "(a){99999999999999999999}", "(" * 5000 + ")" * 5000], ids=range(4)
)
def test_a_pattern_that_cannot_work(pattern):
    with pytest.raises(ValueError, match=r"group|regular expression"):
        compile_pattern(pattern)


def test_the_largest_report_fits():
    rank = RankSnapshot(
        rank=0, local_rank=0, alive=False, exit_code=1, exited_at=1.0, tail="\N{REPLACEMENT CHARACTER}" * 2048
    )
    snapshot = Snapshot(state=RUNNING, ranks=(rank,) * 64, previous_ranks=(rank,) * 64)
    data = encode(snapshot.report(now=2.0, sequence=1))
    assert len(data) <= MAX_REPORT_BYTES
    assert decode_report(data).ranks[63].tail


def test_ages_are_counted_back_and_never_negative():
    report = Snapshot(step=1, step_at=3.0, started_at=9.0, peers=((4, 2.5),)).report(now=5.0, sequence=1)
    assert (report.step_age_seconds, report.started_age_seconds, report.peers[0].silent_seconds) == (2.0, 0.0, 2.5)


def test_progress_is_no_news_and_a_new_state_is():
    before = Snapshot()
    assert not dataclasses.replace(before, step=3, step_at=1.0, peers=((1, 1.0),)).is_news(before)
    assert dataclasses.replace(before, state=RUNNING).is_news(before)


def test_a_process_that_took_over_a_pid_is_not_killed():
    with subprocess.Popen(["sleep", "600"]) as child:
        try:
            known = next(process for process in descendants(os.getpid()) if process.pid == child.pid)
            kill(Process(known.pid, known.parent, known.start_ticks - 1))
            kill(Process(2**22 - 1, 1, 1))
            assert child.poll() is None
            kill(known)
            assert child.wait(PATIENCE_SECONDS) == -9
        finally:
            child.kill()


def test_a_neighbour_given_by_name_is_not_looked_up_and_counts_as_silent():
    peers = Peers(Datagrams("127.0.0.1"))
    peers.begin(1, (Peer(1, "no.such.host.invalid", 1), Peer(2, "127.0.0.1", peers.port)), 2, 0.0)
    peers.poll(0.0)
    assert [index for index, _ in peers.heard()] == [1, 2]


def test_a_full_log_drops_lines_and_blocks_nobody():
    log = Log()
    for i in range(3000):
        log(f"line {i}")
    log.flush(30)


@pytest.mark.parametrize(
    ("inherited", "uid", "expected"),
    [
        ({}, 1000650000, {"USER": "1000650000"}),
        ({}, 65532, {}),
        ({}, 65534, {}),
        ({"LOGNAME": "me"}, 1000650000, {}),
        ({"USER": ""}, 1000650000, {"USER": "1000650000"}),
    ],
)
def test_a_uid_that_the_image_does_not_know_gets_a_name(
    inherited: dict[str, str], uid: int, expected: dict[str, str], tmp_path: Path
) -> None:
    passwd = tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nnon:x:65532:65532\n+::::::\nnobody:x:65534:1000650000:::\n")
    assert user_name(inherited, uid, str(passwd)) == expected


def test_an_image_without_users_knows_none(tmp_path: Path) -> None:
    assert user_name({}, 7, str(tmp_path / "passwd")) == {"USER": "7"}
