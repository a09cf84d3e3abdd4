"""The zygote with probes that misbehave: each is bounded, told apart, and leaves nothing behind."""

import os
import signal
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.preflight_probes.conftest import TORCH, Clocks, Start

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checker.probes import version
from muster.node.checker.probes.prober import Prober, ZygoteError
from muster.node.checker.translate import ENVIRONMENT, result_of_probe


def order(probe: str, order_id: str = "1", deadline: float = 600, **more: Any) -> dict[str, Any]:
    return {"id": order_id, "probe": probe, "device": "cpu", "deadline_seconds": deadline, **more}


def ask(prober: Prober, probe: str, **more: Any) -> dict[str, Any]:
    prober.send(order(probe, **more))
    return receive(prober)


def receive(prober: Prober) -> dict[str, Any]:
    answer = prober.receive(120)
    assert answer is not None
    return answer


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def grandchild(part: dict[str, Any]) -> int:
    return int(part["output"].split("grandchild ")[1].split()[0])


def eventually(what: str, condition: Any) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def test_it_says_what_it_imported_and_how_long_that_took(start: Start) -> None:
    slow = 'import os\nwith open(os.environ["CLOCKS"] + "/still", "w") as file:\n    file.write("7")\n'
    ready = start(slow + TORCH).wait_until_ready(PATIENCE_SECONDS)
    assert ready["key"] == {"torch": "0.0.double", "cuda": None, "nccl": None, "version": version()}
    assert ready["import_seconds"] >= 7


def test_an_image_without_a_usable_torch_is_told_as_such(start: Start) -> None:
    with pytest.raises(ZygoteError, match=r"torch cannot be imported: ImportError: wrong ELF class"):
        start('raise ImportError("wrong ELF class")').wait_until_ready(PATIENCE_SECONDS)


def test_an_import_that_does_not_end_is_bounded(start: Start) -> None:
    with pytest.raises(ZygoteError, match=r"not imported within 0.5 s"):
        start("import time; time.sleep(600)").wait_until_ready(0.5)


def test_each_process_of_a_crew_answers(zygote: Prober) -> None:
    answer = ask(zygote, "fine", processes=3)
    assert (answer["id"], answer["probe"], answer["device"], answer["outcome"]) == ("1", "fine", "cpu", "Done")
    assert [part["figures"] for part in answer["parts"]] == [{"index": i, "crew": 3} for i in range(3)]
    assert answer["parts"][0]["mark"]["model"]


def test_a_hung_probe_is_a_finding_with_its_place_and_ends_its_descendants(zygote: Prober, clocks: Clocks) -> None:
    zygote.send(order("stubborn", deadline=120))
    eventually("the probe is busy", clocks.is_busy)
    clocks.pass_time(121)
    answer = receive(zygote)
    assert answer["outcome"] == "Hung"
    assert answer["message"] == "hung after 120.0 s in busy on CPU"
    eventually("the grandchild is gone", lambda: not alive(grandchild(answer["parts"][0])))
    assert ask(zygote, "fine", order_id="2")["outcome"] == "Done"


def test_of_a_crew_only_the_one_that_hangs_is_told_to_hang(zygote: Prober, clocks: Clocks) -> None:
    zygote.send(order("hang", processes=3, who=1, deadline=120))
    eventually("each of the crew waits", lambda: all(map(clocks.is_busy, range(3))))
    clocks.pass_time(121)
    answer = receive(zygote)
    assert [part["outcome"] for part in answer["parts"]] == ["Cancelled", "Hung", "Cancelled"]
    assert answer["outcome"] == "Hung"
    assert answer["parts"][0]["message"] == "waited on CPU for the others"


def test_nothing_hangs_because_the_machine_stood_still(zygote: Prober) -> None:
    assert ask(zygote, "freeze", deadline=600, seconds=3600)["outcome"] == "Done"


def test_a_probe_that_prints_without_end_is_ended_and_little_of_it_is_kept(zygote: Prober) -> None:
    answer = ask(zygote, "flood")
    assert answer["outcome"] == "Flooded"
    assert len(answer["parts"][0]["output"]) < 5000


def test_first_and_last_words_of_a_probe_that_fails_are_kept(zygote: Prober) -> None:
    answer = ask(zygote, "talk")
    assert (answer["outcome"], answer["message"]) == ("Failed", "ValueError: no luck")
    assert answer["parts"][0]["output"].startswith("first words")
    assert "[...]" in answer["parts"][0]["output"]
    assert answer["parts"][0]["output"].endswith("ValueError: no luck")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_is_told_with_its_signal_and_last_words(zygote: Prober, number: signal.Signals) -> None:
    answer = ask(zygote, "die", signal=int(number))
    assert answer["outcome"] == "Crashed"
    assert answer["message"] == f"ended with {number.name} in dying on CPU"
    assert answer["parts"][0]["output"] == "about to die"


def test_a_probe_that_is_killed_for_memory_says_nothing_of_the_node(zygote: Prober) -> None:
    answer = ask(zygote, "die", signal=int(signal.SIGKILL))
    assert answer["outcome"] == "Unfit"
    assert answer["message"].startswith("killed from outside in dying on CPU")
    assert result_of_probe(answer["outcome"]) == ENVIRONMENT


def test_an_exit_without_an_answer_is_a_crash(zygote: Prober) -> None:
    assert ask(zygote, "leave")["message"] == "ended with exit code 9 in start on CPU"


@pytest.mark.parametrize("named", ["1", None])
def test_a_cancelled_probe_gives_way_at_once(zygote: Prober, clocks: Clocks, named: str | None) -> None:
    zygote.send(order("hang", deadline=600))
    eventually("the probe is busy", clocks.is_busy)
    zygote.cancel(named)
    answer = receive(zygote)
    assert answer["outcome"] == "Cancelled"
    eventually("the grandchild is gone", lambda: not alive(grandchild(answer["parts"][0])))


def test_a_crew_begins_its_load_together(zygote: Prober) -> None:
    figures = [part["figures"] for part in ask(zygote, "meet", processes=3)["parts"]]
    assert min(told["began"] for told in figures) >= max(told["came"] for told in figures)


def test_nobody_waits_for_one_that_has_given_up(zygote: Prober) -> None:
    answer = ask(zygote, "meet", processes=3, absent=True)
    assert [part["outcome"] for part in answer["parts"]] == ["InUse", "Done", "Done"]
    assert (answer["outcome"], answer["message"]) == ("InUse", "somebody has it")


def test_members_that_need_one_that_has_failed_are_ended_soon(zygote: Prober) -> None:
    answer = ask(zygote, "forsake", processes=2, nodes=1, deadline=600)
    assert [part["outcome"] for part in answer["parts"]] == ["Failed", "Cancelled"]
    assert answer["outcome"] == "Failed"


def test_nonsense_from_a_probe_is_passed_over(zygote: Prober) -> None:
    assert ask(zygote, "garble")["parts"][0]["figures"] == {"fine": True}


def test_more_memory_than_there_is_blames_nobody(zygote: Prober) -> None:
    assert ask(zygote, "starve")["outcome"] == "Unfit"


def test_a_node_on_which_no_probe_can_be_started_is_not_blamed(start: Start) -> None:
    full = """
        import tempfile
        def mkdtemp(*arguments, **options):
            raise OSError(30, "Read-only file system")
        tempfile.mkdtemp = mkdtemp
    """
    prober = start(TORCH + textwrap.dedent(full))
    prober.wait_until_ready(PATIENCE_SECONDS)
    answer = ask(prober, "forsake", processes=2, nodes=1)
    assert answer["outcome"] == "Unfit"
    assert "Read-only file system" in answer["message"]
    assert ask(prober, "fine")["outcome"] == "Done"


def test_two_probes_do_not_share_a_gpu(zygote: Prober) -> None:
    zygote.send({**order("hang", deadline=600), "device": "cuda", "devices": [0, 1]})
    zygote.send({**order("fine", "2"), "device": "cuda", "devices": [1]})
    answer = zygote.receive(120)
    assert answer is not None
    assert (answer["id"], answer["message"]) == ("2", "another probe has these GPUs")


def test_a_gpu_that_another_has_is_left_alone_and_not_waited_for(start: Start, tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text(f"0 {2**33}")
    prober = start(GPUS=str(tmp_path / "gpus"))
    prober.wait_until_ready(PATIENCE_SECONDS)
    answer = ask(prober, "fine", device="cuda", devices=[0, 1])
    assert [part["outcome"] for part in answer["parts"]] == ["Done", "InUse"]
    assert answer["message"] == "GPU 1 is in use: a process that is not shown here, 8.0 GiB"
    assert answer["parts"][1]["figures"] == {}
    assert answer["parts"][0]["mark"] == {"model": "H200", "uuid": "GPU-0", "driver": "580"}
    assert answer["given_back"]["free"] is True


def test_an_answer_comes_when_the_gpu_is_free_again(start: Start, tmp_path: Path) -> None:
    (tmp_path / "gpus").write_text("0 0")
    prober = start(GPUS=str(tmp_path / "gpus"))
    prober.wait_until_ready(PATIENCE_SECONDS)
    answer = ask(prober, "occupy", device="cuda", devices=[0])
    assert answer["outcome"] == "Done"
    assert answer["given_back"]["free"] is True
    assert answer["given_back"]["seconds"] > 0
    assert (tmp_path / "gpus").read_text() == "0 0"


def test_several_probes_run_beside_each_other(zygote: Prober, clocks: Clocks) -> None:
    zygote.send(order("hang", "slow", deadline=120))
    zygote.send(order("fine", "quick"))
    assert receive(zygote)["id"] == "quick"
    clocks.pass_time(121)
    assert receive(zygote)["id"] == "slow"


def test_a_probe_holds_no_pipe_of_the_zygote_or_of_another_probe(zygote: Prober) -> None:
    zygote.send(order("hang", "other", deadline=600))
    opened = ask(zygote, "descriptors")["parts"][0]["figures"]["open"]
    assert len(opened) == 3 + 2 + 1  # stdio, its own two pipes, and the listing itself


def test_a_descriptor_is_not_lost_with_each_probe(zygote: Prober) -> None:
    assert zygote.ready is not None
    folder = Path(f"/proc/{zygote.ready['pid']}/fd")
    before = len(list(folder.iterdir()))
    for number in range(10):
        ask(zygote, "fine", order_id=str(number), processes=4)
    assert len(list(folder.iterdir())) == before


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (order("Nothing"), "there is no probe 'Nothing'"),
        (order("fine", deadline=0), "deadline_seconds must be"),
        (order("Gemm"), "Gemm needs size, seconds, burst_seconds"),
        (order("fine") | {"device": "tpu"}, "device must be"),
    ],
    ids=["unknown", "no deadline", "parameters missing", "device"],
)
def test_a_bad_order_is_refused_and_nothing_else_happens(zygote: Prober, sent: dict[str, Any], why: str) -> None:
    zygote.send(sent)
    answer = zygote.receive(120)
    assert answer is not None
    assert (answer["id"], answer["outcome"]) == ("1", "Refused")
    assert why in answer["message"]
    assert ask(zygote, "fine")["outcome"] == "Done"


def test_with_its_owner_all_that_it_forked_ends(zygote: Prober) -> None:
    zygote.send(order("hang", deadline=600))
    assert zygote.ready is not None
    pid = zygote.ready["pid"]
    children = Path(f"/proc/{pid}/task/{pid}/children")
    eventually("the probe runs", lambda: children.read_text().split())
    child = int(children.read_text().split()[0])
    zygote.close()
    eventually("the zygote has ended", lambda: not alive(pid))
    eventually("its child has ended", lambda: not alive(child))


def test_a_zygote_that_dies_is_noticed(zygote: Prober) -> None:
    assert zygote.ready is not None
    os.kill(zygote.ready["pid"], signal.SIGKILL)
    with pytest.raises(ZygoteError, match="signal 9"):
        zygote.receive(120)
