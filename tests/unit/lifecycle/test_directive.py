"""What a launcher is told, from the record alone."""

from dataclasses import replace

import pytest
from tests.unit.lifecycle.builders import EPOCH, Scene, a_job, an_incident, idle, running

from muster.api.base import ObjectMeta
from muster.api.gang import Branch, Gang
from muster.api.trainingjob import CompletionRecord, CompletionResult, TrainingJob
from muster.lifecycle.directive import LONGEST_POLL_SECONDS, directive_for
from muster.protocol.messages import EXIT, RUN, WAIT, Directive
from muster.world.job import OtherJob
from muster.world.names import pod_name
from muster.world.views import FRESH_SECONDS, LauncherView


def told(
    scene: Scene,
    index: int = 1,
    uid: str = "",
    incarnation: int = 1,
    job: TrainingJob | None = None,
    other: OtherJob | None = None,
) -> Directive:
    job = job or scene.job
    gang = Gang(metadata=ObjectMeta(name="g"), spec=scene.record) if scene.record else None
    name = pod_name(scene.job.metadata.name, scene.job.metadata.uid, index, incarnation)

    def launcher_of(number: int) -> LauncherView | None:
        return scene.launchers.get(scene.uid(number))

    return directive_for(job, gang, name, uid or scene.uid(index, incarnation), launcher_of, other=other)


def test_before_the_go_it_waits() -> None:
    directive = told(Scene(a_job()).gang(4, go=False))
    assert (directive.kind, directive.attempt) == (WAIT, 4)


@pytest.mark.parametrize(("directory", "claims"), [("/c", True), ("s3://b/run", False), (None, False)])
def test_nobody_writes_a_fence_file_into_a_store(directory: str | None, claims: bool) -> None:
    job = a_job(checkpoint={"directory": directory} if directory else {})
    assert told(Scene(job).gang(4, go=False), index=0).writes_fence_file == claims


@pytest.mark.parametrize(
    ("reason", "resumed", "wanted"),
    [("StepTimeout", None, 3), ("StartTimeout", None, 3), ("StepTimeout", 7, None), ("RankFailed", None, None)],
)
def test_the_ranks_of_a_hung_attempt_print_their_stacks(reason: str, resumed: int | None, wanted: int | None) -> None:
    incident = an_incident(3, reason=reason, resumed_step=resumed)
    assert told(Scene(a_job()).gang(4, go=False, incidents=[incident])).stacks_of_attempt == wanted


def test_hung_ranks_print_their_stacks_even_where_their_pod_is_replaced() -> None:
    scene = Scene(a_job()).gang(4, go=False, incidents=[an_incident(3, reason="StepTimeout")])
    directive = told(scene, incarnation=2)
    assert (directive.kind, directive.stacks_of_attempt) == (EXIT, 3)


def test_with_the_go_it_runs_what_the_record_says() -> None:
    here = Scene(a_job(launch={"processesPerNode": 2})).gang(4, resume=7).all(running(4))
    directive = told(here)
    assert (directive.kind, directive.attempt, directive.node_rank, directive.node_count) == (RUN, 4, 1, 3)
    assert (directive.master_address, directive.master_port) == ("10.0.0.1", 20001)
    assert (directive.resume_step, directive.resume_path, directive.processes_per_node) == (7, "/checkpoints/7", 2)
    assert [peer.index for peer in directive.peers] == [0, 2]


def test_in_a_large_gang_it_pings_two_neighbours_on_either_side() -> None:
    here = Scene(a_job(nodes=10)).gang().all(running(1))
    directive = told(here, index=0)
    assert ([peer.index for peer in directive.peers], directive.neighbours) == ([1, 2, 8, 9], 4)


def test_a_neighbour_that_has_not_told_its_address_is_left_out() -> None:
    here = Scene(a_job()).gang().all(running(1)).launcher(2, replace(idle(1), address=""))
    directive = told(here)
    assert ([peer.index for peer in directive.peers], directive.neighbours) == ([0], 2)


@pytest.mark.parametrize(
    ("nodes", "crowd", "seconds"),
    [
        pytest.param(3, 3, 1.0, id="few"),
        pytest.param(3, 1024, 4.0, id="a small gang among many others"),
        pytest.param(768, 4, 3.0, id="a large gang of which few have reported"),
        pytest.param(3, 2**20, 5.0, id="never too slow to notice silence"),
    ],
)
@pytest.mark.parametrize("go", [False, True])
def test_the_pace_follows_all_launchers(nodes: int, crowd: int, seconds: float, go: bool) -> None:
    scene = Scene(a_job(nodes=nodes)).gang(go=go)
    name = pod_name(scene.job.metadata.name, scene.job.metadata.uid, 0, 1)
    assert scene.record
    gang = Gang(metadata=ObjectMeta(name="g"), spec=scene.record)
    directive = directive_for(scene.job, gang, name, scene.uid(0), lambda _: None, crowd)
    assert (directive.poll_seconds, directive.hold_seconds) == (seconds, seconds)


def test_all_reports_are_fresh_at_one_moment_however_many_launchers() -> None:
    scene = Scene(a_job(recovery={"unreachableTimeoutSeconds": 600})).gang().all(running(1))
    name = pod_name(scene.job.metadata.name, scene.job.metadata.uid, 0, 1)
    assert scene.record
    gang = Gang(metadata=ObjectMeta(name="g"), spec=scene.record)
    directive = directive_for(scene.job, gang, name, scene.uid(0), lambda _: None, 2**20)
    assert directive.poll_seconds == LONGEST_POLL_SECONDS
    assert directive.poll_seconds + 5 <= FRESH_SECONDS


@pytest.mark.parametrize(
    ("index", "uid", "incarnation"),
    [
        pytest.param(1, "somebody", 1, id="another pod of that name"),
        pytest.param(1, "", 2, id="another incarnation"),
        pytest.param(7, "", 1, id="no such member"),
    ],
)
def test_who_is_no_member_exits(index: int, uid: str, incarnation: int) -> None:
    assert told(Scene(a_job()).gang(), index, uid, incarnation).kind == EXIT


def test_without_a_record_it_exits() -> None:
    assert told(Scene(a_job())).kind == EXIT


def test_a_job_of_the_same_name_is_not_its_job() -> None:
    assert told(Scene(a_job()).gang(), job=a_job(uid="another")).kind == EXIT


def test_without_a_job_it_exits_and_fails() -> None:
    directive = directive_for(None, None, "job-12345-0-1", "uid", lambda _: None)
    assert (directive.kind, directive.exit_code) == (EXIT, 1)


@pytest.mark.parametrize(("result", "code"), [(CompletionResult.SUCCEEDED, 0), (CompletionResult.FAILED, 1)])
def test_at_the_end_it_exits_as_the_job_did(result: CompletionResult, code: int) -> None:
    end = CompletionRecord(result=result, reason="Completed", time=EPOCH, attempt=1)
    job = a_job()
    job = job.model_copy(update={"status": job.status.model_copy(update={"completion": end})})
    directive = told(Scene(job).gang(), job=job)
    assert (directive.kind, directive.exit_code) == (EXIT, code)


@pytest.mark.parametrize("go", [True, False])
def test_what_is_another_history_is_named(go: bool) -> None:
    branch = Branch(resume_from="100", step=100, excluded_checkpoints="1000:70,200:90")
    here = Scene(a_job()).gang(go=go, branch=branch).all(running(1))
    directive = told(here)
    assert (directive.branch_step, directive.excluded_checkpoints) == (100, "1000:70,200:90")


@pytest.mark.parametrize("excluded", ["", "1000:70"])
def test_beyond_a_step_from_which_all_is_suspect_nothing_counts(excluded: str) -> None:
    branch = Branch(resume_from="", step=100, frozen=True, excluded_checkpoints=excluded)
    directive = told(Scene(a_job()).gang(go=False, branch=branch).all(idle(1)))
    assert (directive.branch_step, directive.branch_frozen) == (100, True)


@pytest.mark.parametrize(
    ("requested", "looked_for"), [("005", "5"), (7, "7"), ("/c//step-5/", "/c/step-5"), ("/c/./step-5", "/c/step-5")]
)
def test_a_wish_is_looked_for_as_checkpoints_are_called(requested: int | str, looked_for: str) -> None:
    job = a_job(checkpoint={"directory": "/c", "resumeFrom": requested})
    assert told(Scene(job).gang(go=False)).requested_resume == looked_for


@pytest.mark.parametrize(
    ("requested", "other", "looked_for", "there"),
    [
        ("job/base", OtherJob("base", exists=True, directory="/base"), "", "/base"),
        ("job/base@500", OtherJob("base", exists=True, directory="/base"), "500", "/base"),
        ("job/base", OtherJob("base", exists=True, directory="/c"), "", None),
        ("job/base", OtherJob("base"), "", None),
        ("job/base@500", OtherJob("base", exists=True, directory="s3://b/base/"), "500", "s3://b/base/"),
        ("s3://b/base/step-5/", None, "s3://b/base/step-5", "s3://b/base"),
        ("s3://b", None, "s3://b", "s3://b"),
        ("/base/step-5", None, "/base/step-5", "/base"),
        ("/c/step-5", None, "/c/step-5", None),
        (5, None, "5", None),
    ],
)
def test_a_wish_for_another_directory_says_which(
    requested: int | str, other: OtherJob | None, looked_for: str, there: str | None
) -> None:
    job = a_job(checkpoint={"directory": "/c", "resumeFrom": requested})
    directive = told(Scene(job).gang(go=False), other=other)
    assert (directive.requested_resume, directive.requested_directory) == (looked_for, there)


@pytest.mark.parametrize(
    ("requested", "there"),
    [
        ("s3://b/run/step-5", None),
        ("s3://b/run", None),
        ("s3://b/run-2/step-5", "s3://b/run-2"),
        ("/c/step-5", "/c"),
    ],
)
def test_so_it_is_for_a_job_whose_directory_is_a_store(requested: str, there: str | None) -> None:
    job = a_job(checkpoint={"directory": "s3://b/run/", "resumeFrom": requested})
    directive = told(Scene(job).gang(go=False))
    assert (directive.requested_resume, directive.requested_directory) == (requested, there)


def test_the_preset_of_the_record_is_told() -> None:
    scene = Scene(a_job()).gang(resume=7)
    assert scene.record is not None
    assert scene.record.start is not None
    assert told(scene).resume_preset is None
    go = scene.record.start.model_copy(update={"resume_preset": "Megatron"})
    scene.record = scene.record.model_copy(update={"start": go})
    assert told(scene).resume_preset == "Megatron"


def test_who_is_asked_to_go_on_from_elsewhere_leaves_nothing_out() -> None:
    job = a_job(checkpoint={"directory": "/c", "resumeFrom": 1000})
    directive = told(
        Scene(job).gang(go=False, branch=Branch(resume_from="100", step=100, excluded_checkpoints="1000:70"))
    )
    assert (directive.requested_resume, directive.branch_step, directive.excluded_checkpoints) == ("1000", None, None)
    done = told(Scene(job).gang(go=False, branch=Branch(resume_from="1000", step=1000, excluded_checkpoints="2000:70")))
    assert (done.requested_resume, done.branch_step, done.excluded_checkpoints) == (None, 1000, "2000:70")


def test_ranks_of_an_ejected_gang_go_on_without_muster() -> None:
    assert told(Scene(a_job()).gang(4, ejected=True)).ejected is True
    assert told(Scene(a_job()).gang(4)).ejected is None
    replaced = told(Scene(a_job()).gang(4, ejected=True), incarnation=2)
    assert (replaced.kind, replaced.ejected) == (EXIT, None), "a pod that is no member ends its ranks"
