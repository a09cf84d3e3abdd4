"""Which node a job's failures have followed, as its record tells."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import EPOCH, an_incident

from muster.api.base import ObjectMeta
from muster.api.gang import FaultClass, Gang, GangIncident, GangSpec, Level, Resume
from muster.recovery.failure import Kind
from muster.recovery.followed import KINDS, MAX_WORDS, comparable_facts, failures_that_followed
from muster.world.names import gang_name

A, U, H = FaultClass.APPLICATION, FaultClass.UNKNOWN, FaultClass.HARDWARE
INFRASTRUCTURE, PLANNED = FaultClass.INFRASTRUCTURE, FaultClass.PLANNED


def failed(
    node: str = "n1", step: int | None = None, hours: float = 0, fault: FaultClass = A, **changes: Any
) -> GangIncident:
    """One failure whose class is final, of one worker alone."""
    values = {
        "node": node,
        "step": step,
        "time": EPOCH + timedelta(hours=hours),
        "settled": True,
        "other_workers": 0,
        "exit_code": 1,
        "message": "rank 3 exited with code 1; its last lines: secret",
    }
    return an_incident(changes.pop("attempt", 1), fault, **(values | changes))


def gang(*incidents: GangIncident, saved: int | None = None) -> Gang:
    spec = GangSpec(
        job_uid="uid",
        attempt=len(incidents) + 1,
        time=EPOCH,
        level=Level.START,
        reason="Created",
        incidents=list(incidents),
        checkpoint=None if saved is None else Resume(step=saved, path="/ckpt"),
    )
    return Gang(metadata=ObjectMeta(name=gang_name("llama", "uid"), namespace="team-a"), spec=spec)


def blamed(*incidents: GangIncident, saved: int | None = None) -> tuple[str, int]:
    node, words = failures_that_followed(gang(*incidents, saved=saved))
    return node, len(words)


@pytest.mark.parametrize(
    ("incidents", "want"),
    [
        pytest.param([], ("", 0), id="none"),
        pytest.param([failed(step=5)], ("n1", 1), id="one"),
        pytest.param([failed(step=5), failed(step=9)], ("n1", 2), id="again, further on"),
        pytest.param([failed(step=5), failed(step=5), failed(step=5)], ("n1", 1), id="in place, at the same step"),
        pytest.param([failed(), failed(), failed()], ("", 0), id="in place, before the first step"),
        pytest.param([failed(exit_code=127)], ("", 0), id="a command that is not in the image"),
        pytest.param([failed(exit_code=2), failed(exit_code=2)], ("", 0), id="a script that is not there, twice"),
        pytest.param([failed(reason="PodEnded", exit_code=1)], ("", 0), id="a container before the first step"),
        pytest.param([failed(), failed(step=9)], ("n1", 2), id="before the first step, and the program went on"),
        pytest.param(
            [failed("n2", step=50, resumed_step=40, fault=PLANNED), failed(step=40)],
            ("", 0),
            id="before the first step after a checkpoint",
        ),
        pytest.param(
            [failed("n2", step=50, resumed_step=40, fault=PLANNED), failed(step=41)],
            ("n1", 1),
            id="after the first step from a checkpoint",
        ),
        pytest.param([failed(reason="StartTimeout", exit_code=None)], ("n1", 1), id="a hang before the first step"),
        pytest.param([failed(step=9), failed(step=5)], ("n1", 1), id="from an older checkpoint, not so far"),
        pytest.param([failed(step=5), failed("n2", step=9)], ("", 0), id="on two nodes"),
        pytest.param([failed(step=1), failed("n2", 2), failed(step=3)], ("n1", 2), id="on one of two more often"),
        pytest.param([failed(f"n{i}", step=i) for i in range(40)], ("", 0), id="everywhere"),
        pytest.param([failed("n1", 1), failed("n2", 1), failed("n1", 1)], ("n1", 2), id="it came back to it"),
        pytest.param([failed(other_workers=2)], ("", 0), id="others with it"),
        pytest.param([failed(other_workers=None)], ("", 0), id="a record of old"),
        pytest.param([failed(step=5, own_exception=True)], ("", 0), id="an exception of the program's own"),
        pytest.param(
            [failed(step=5), failed("n2", step=6, own_exception=True), failed("n3", step=7, own_exception=True)],
            ("", 0),
            id="one without an explanation, and two on other nodes",
        ),
        pytest.param(
            [failed(step=5), failed(step=5, reason="StepTimeout", exit_code=None, other_workers=None)],
            ("n1", 1),
            id="a hang of the only worker behind it",
        ),
        pytest.param(
            [failed(step=5, reason="StepTimeout", exit_code=None, other_workers=None)], ("", 0), id="such a hang alone"
        ),
        pytest.param([failed(step=5, reason="StepTimeout", exit_code=None)], ("n1", 1), id="a hang of one of several"),
        pytest.param([failed(step=1), failed(step=2, other_workers=7)], ("n1", 1), id="once alone, once everybody"),
        pytest.param([failed(), failed(other_workers=3)], ("", 0), id="in a row, the second time everybody"),
        pytest.param([failed(settled=False)], ("", 0), id="class and blame are not final"),
        pytest.param([failed(node="")], ("", 0), id="on no node"),
        pytest.param([failed(fault=H)], ("", 0), id="its hardware was seen to be sick"),
        pytest.param([failed(fault=PLANNED, reason="Maintenance")], ("", 0), id="it left as planned"),
        pytest.param([failed(fault=A, reason="OutOfMemory")], ("", 0), id="memory was used up"),
        pytest.param([failed(fault=U, signal=9, exit_code=None)], ("", 0), id="killed"),
        pytest.param([failed(exit_code=137)], ("", 0), id="killed, by a shell's code"),
        pytest.param([failed(exit_code=143)], ("", 0), id="terminated"),
        pytest.param([failed(signal=11, exit_code=None)], ("n1", 1), id="a segmentation fault"),
        pytest.param([failed(fault=INFRASTRUCTURE, reason="ContainerLost")], ("n1", 1), id="the runtime lost it"),
        pytest.param([failed(fault=INFRASTRUCTURE, reason="PodDeleted")], ("", 0), id="somebody deleted it"),
        pytest.param([failed(step=5), failed("n2", 9, hours=200)], ("n2", 1), id="what was long ago is another story"),
        pytest.param([failed(step=i) for i in range(50)], ("n1", MAX_WORDS), id="bounded"),
    ],
)
def test_a_record_blames_the_node_that_failures_followed(incidents: list[GangIncident], want: tuple[str, int]) -> None:
    assert blamed(*incidents) == want


@pytest.mark.parametrize("kind", [*Kind])
def test_what_names_another_cause_blames_no_node(kind: Kind) -> None:
    others = {
        Kind.CORRUPTION,  # its nodes are tested
        Kind.FENCED,  # the network, or Muster
        Kind.RECLAIM_SLOW,
        Kind.LISTING_STUCK,  # storage
        Kind.RESUMED_BEHIND,
        Kind.POD_DELETED,
        Kind.POD_GONE,
        Kind.OUT_OF_MEMORY,
        Kind.EVICTED,
        Kind.START_FAILED,
        Kind.NODE_CONFLICT,
        Kind.NODE_GONE,
        Kind.NODE_UNHEALTHY,  # it was seen
    }
    assert (kind in KINDS) is (kind not in others), "either follows_node in TRAITS, or one of the others here"
    assert blamed(failed(reason=kind, step=5))[1] == (kind not in others)


@pytest.mark.parametrize(
    ("incidents", "saved", "want"),
    [
        pytest.param([failed(step=5)], None, [False], id="never"),
        pytest.param([failed(step=5)], 5, [False], id="a checkpoint of the failing step"),
        pytest.param([failed(step=5)], 6, [True], id="a checkpoint beyond"),
        pytest.param([failed(step=5, checkpoint_step=7)], 7, [False], id="one that was there"),
        pytest.param([failed(step=5), failed(step=9)], None, [True, False], id="it failed further on"),
        pytest.param([failed(), failed(step=9)], None, [True, False], id="it failed before the first step, then not"),
        pytest.param([failed(step=5), failed(step=5), failed(step=5)], None, [False], id="in place"),
    ],
)
def test_whether_the_program_got_beyond(incidents: list[GangIncident], saved: int | None, want: list[bool]) -> None:
    _, words = failures_that_followed(gang(*incidents, saved=saved))
    assert [word.went_on for word in words] == want


def test_a_failure_report_has_nothing_that_a_container_printed() -> None:
    """It says which job, which attempt and what failed."""
    _, (word,) = failures_that_followed(gang(failed(attempt=7, step=5), failed(attempt=8, step=5, hours=1)))
    assert (word.owner, word.job, word.attempt, word.what) == ("team-a", "team-a/llama", 7, "RankFailed (exit code 1)")
    assert word.time == EPOCH
    assert "secret" not in repr(word)


@pytest.mark.parametrize(
    "change",
    [{"settled": False}, {"fault_class": H}, {"other_workers": 3}, {"node": "n2"}, {"own_exception": True}],
    ids=lambda change: next(iter(change)),
)
def test_what_changes_a_word_is_seen(change: dict[str, Any]) -> None:
    before = failed(step=5)
    after = before.model_copy(update=change)
    assert failures_that_followed(gang(before)) != failures_that_followed(gang(after))
    assert comparable_facts(gang(before)) != comparable_facts(gang(after))
    assert comparable_facts(gang(before)) != comparable_facts(gang(before, saved=9))
    assert comparable_facts(gang(before)) == comparable_facts(gang(failed(step=5)))
