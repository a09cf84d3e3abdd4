"""How a start tells the program where to go on: chosen with the go, the same for all nodes, and told."""

import dataclasses
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, idle, running

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport
from muster.status.report import State
from muster.status.template import problem
from muster.world.fleet import Fleet

MEGATRON = ["torchrun", "pretrain_gpt.py", "--save", "/c"]


def job_of(command: list[str], **checkpoint: Any) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": command}]}}
    return a_job(template=template, checkpoint={"directory": "/c", **checkpoint})


def about_to_start(job: TrainingJob, format: str = "Megatron") -> Scene:  # noqa: A002
    here = Scene(job).fleet().gang(2, go=False).pods()
    return here.all(idle(2, checkpoints=(CheckpointReport(40, "/c/iter_0000040", format=format),), stamps=""))


def begun(plan: Plan) -> GangSpec:
    (spec,) = [action.spec for action in plan.actions if isinstance(action, CommitGang)]
    return spec


def test_what_both_tell_is_chosen_with_the_go_and_told() -> None:
    here = about_to_start(job_of(MEGATRON))
    plan = decide(here.world(), SETTINGS)
    here.record = begun(plan)
    assert here.record.start is not None
    assert here.record.start.resume_preset == "Megatron"
    words = "resumed as Megatron: the command ends with --load /c --ckpt-step 40"
    assert words in plan.announcements[0].note
    told = decide(here.all(running(2, 41)).world(), SETTINGS).status
    assert told is not None
    assert words in next(each.message for each in told.conditions if each.type == "Running")


@pytest.mark.parametrize(
    ("command", "checkpoint", "format_"),
    [
        (MEGATRON, {"resumePreset": "Off"}, "Megatron"),
        (MEGATRON, {"resumeArgument": ["--load", "/c"]}, "Megatron"),
        (MEGATRON, {}, "TorchDCP"),
        (["python", "train.py"], {}, "Megatron"),
        (["bash", "-c", "torchrun pretrain_gpt.py"], {}, "Megatron"),
    ],
)
def test_nothing_is_guessed(command: list[str], checkpoint: dict[str, Any], format_: str) -> None:
    record = begun(decide(about_to_start(job_of(command, **checkpoint), format_).world(), SETTINGS))
    assert record.start is not None
    assert record.start.resume is not None
    assert record.start.resume_preset == ""


def test_a_named_preset_counts_in_place_of_the_commands_own_word() -> None:
    job = job_of([*MEGATRON, "--ckpt-step", "7"], resumePreset="Megatron")
    plan = decide(about_to_start(job).world(), SETTINGS)
    assert "which counts in place of its own --ckpt-step 7" in plan.announcements[0].note


def test_a_preset_of_another_framework_stalls_the_start() -> None:
    plan = decide(about_to_start(job_of(["python", "x.py"], resumePreset="Lightning")).world(), SETTINGS)
    assert plan.status_report is not None
    assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "ResumePresetMismatch")
    assert "Set it to Megatron, or to Off" in plan.status_report.message


class TestAPointerThatMisleads:
    TRAP = "there is no latest: DeepSpeed by itself would begin from scratch. Write global_step40 into it"

    def plan(self, command: list[str], env: Any = None, **checkpoint: Any) -> Plan:
        job = job_of(command, **checkpoint)
        job.spec.template["spec"]["containers"][0]["env"] = env or []
        here = Scene(job).fleet().gang(2, go=False).pods()
        seen = (CheckpointReport(40, "/c/global_step40", format="DeepSpeed"),)
        return decide(here.all(idle(2, checkpoints=seen, stamps="", checkpoint_trap=self.TRAP)).world(), SETTINGS)

    def test_holds_a_start_that_nothing_is_known_to_tell_where_to_go_on(self) -> None:
        plan = self.plan(["torchrun", "train.py"])
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "CheckpointPointerMisleads")
        assert plan.status_report.message.startswith(self.TRAP)
        assert (
            "set spec.checkpoint.resumePreset: DeepSpeed, by which each start does that" in plan.status_report.message
        )
        assert "Off, if the program goes by MUSTER_RESUME_PATH" in plan.status_report.message
        assert not any(isinstance(action, CommitGang) for action in plan.actions)

    @pytest.mark.parametrize(
        ("command", "env", "checkpoint"),
        [
            (["torchrun", "train.py"], None, {"resumePreset": "DeepSpeed"}),
            (["torchrun", "train.py"], None, {"resumePreset": "Off"}),
            (["torchrun", "train.py"], None, {"resumeArgument": ["--load", "x"]}),
            (["torchrun", "train.py", "--load", "$(MUSTER_RESUME_PATH)"], None, {}),
            (["bash", "-c", "exec train ${MUSTER_RESUME_PATH:+--load $MUSTER_RESUME_PATH}"], None, {}),
            (["torchrun", "train.py"], [{"name": "TAG", "value": "$(MUSTER_RESUME_STEP)"}], {}),
        ],
    )
    def test_holds_nothing_where_the_job_says_how(
        self, command: list[str], env: Any, checkpoint: dict[str, Any]
    ) -> None:
        record = begun(self.plan(command, env, **checkpoint))
        assert record.start is not None
        assert record.start.resume is not None


class TestAPointerToAFirstSaveThatWasCutShort:
    TRAP = "latest names global_step40, which is not complete: DeepSpeed would fail to load it. Remove latest"

    def plan(self, **checkpoint: Any) -> Plan:
        here = Scene(job_of(["torchrun", "train.py"], **checkpoint)).fleet().gang(2, go=False).pods()
        seen = CheckpointReport(40, "/c/global_step40", format="DeepSpeed", verified=False)
        here.all(
            idle(2, checkpoints=(dataclasses.replace(seen, incomplete=True),), stamps="", checkpoint_trap=self.TRAP)
        )
        here.launcher(1, idle(2, checkpoints=(seen,)))  # which only looks, and judges nothing
        return decide(here.world(), SETTINGS)

    @pytest.mark.parametrize("checkpoint", [{}, {"resumePreset": "DeepSpeed"}])
    def test_holds_a_start_from_scratch(self, checkpoint: dict[str, Any]) -> None:
        plan = self.plan(**checkpoint)
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "CheckpointPointerMisleads")
        assert plan.status_report.message.startswith(self.TRAP)
        assert "Off, if the program does not go by it" in plan.status_report.message

    @pytest.mark.parametrize("checkpoint", [{"resumePreset": "Off"}, {"resumeArgument": ["--load", "x"]}])
    def test_holds_nothing_where_the_job_says_how(self, checkpoint: dict[str, Any]) -> None:
        record = begun(self.plan(**checkpoint))
        assert record.start is not None
        assert record.start.resume is None


def test_words_that_a_shell_would_not_pass_on_are_refused() -> None:
    found = problem(job_of(["bash", "-c", "train"], resumePreset="Lightning"), Fleet())
    assert found is not None
    assert found[0] == "ResumeArgumentUnused"
    assert "spec.checkpoint.resumePreset: Lightning ends the command with words, and bash does not pass on" in found[1]
    for name in ("DeepSpeed", "Auto", "Off"):
        assert problem(job_of(["bash", "-c", "train"], resumePreset=name), Fleet()) is None


def test_options_in_a_file_that_has_to_stand_alone_are_left_alone_and_that_is_told() -> None:
    command = ["torchrun", "run_clm.py", "config.json"]
    found = problem(job_of(command, resumePreset="HuggingFaceTrainer"), Fleet())
    assert found is not None
    assert (
        "takes its options from config.json only where nothing stands beside it: write them into the command"
        in found[1]
    )
    assert problem(job_of(command), Fleet()) is None
    assert problem(job_of([*command[:2], "--output_dir", "/c"], resumePreset="HuggingFaceTrainer"), Fleet()) is None

    here = Scene(job_of(command)).fleet().gang(2, go=False).pods()
    seen = (CheckpointReport(40, "/c/checkpoint-40", format="HuggingFaceTrainer"),)
    here.all(idle(2, checkpoints=seen, stamps=""))
    here.record = begun(decide(here.world(), SETTINGS))
    assert here.record.start is not None
    assert here.record.start.resume_preset == ""
    here.all(running(2, 1, first_step=1, checkpoints=seen))
    here.record = here.record.model_copy(update={"incidents": begun(decide(here.world(), SETTINGS)).incidents})
    told = decide(here.world(), SETTINGS).status
    assert told is not None
    message = next(each.message for each in told.conditions if each.type == "Running")
    assert "takes its options from config.json only where nothing stands beside it" in message


def test_a_preset_that_can_never_resume_from_the_store_is_refused() -> None:
    """It is refused before anything starts."""
    for name, says in (
        ("HuggingFaceTrainer", "loads only from a file system"),
        ("DeepSpeed", "goes by the file `latest`"),
    ):
        found = problem(job_of(["torchrun", "x.py"], directory="s3://b/c", resumePreset=name), Fleet())
        assert found is not None
        assert found[0] == "ResumePresetMismatch"
        assert says in found[1]
    for name in ("Lightning", "Auto", "Off"):
        assert problem(job_of(["torchrun", "x.py"], directory="s3://b/c", resumePreset=name), Fleet()) is None


def test_what_a_store_adds_is_told_with_the_url() -> None:
    job = job_of(["python", "x.py"], directory="s3://b/c", resumePreset="Lightning")
    here = Scene(job).fleet().gang(2, go=False).pods()
    seen = (CheckpointReport(40, "s3://b/c/step=40.ckpt", format="Lightning"),)
    plan = decide(here.all(idle(2, checkpoints=seen, stamps="")).world(), SETTINGS)
    assert "the command ends with --ckpt_path s3://b/c/step=40.ckpt" in plan.announcements[0].note


def test_who_does_not_go_on_reads_which_preset_would_tell_it() -> None:
    here = about_to_start(job_of(["python", "x.py"]))
    here.record = begun(decide(here.world(), SETTINGS))
    seen = (CheckpointReport(40, "/c/iter_0000040", format="Megatron"),)
    here.all(running(2, 1, first_step=1, checkpoints=seen))
    first = begun(decide(here.world(), SETTINGS)).incidents
    here.record = here.record.model_copy(update={"incidents": first})
    told = decide(here.world(), SETTINGS).status
    assert told is not None
    assert told.reason == "ResumedBehind"
    message = next(each.message for each in told.conditions if each.type == "Running")
    assert "with spec.checkpoint.resumePreset: Megatron its command would end with --load /c --ckpt-step 40" in message
