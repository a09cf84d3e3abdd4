"""docs/cli.md tells of every command, every option of its own and every field that programs may read."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from muster.answers.experimentreported import ExperimentJob, ExperimentReport
from muster.answers.explanation import JobEvent
from muster.answers.fleetreported import (
    FleetBucket,
    FleetCause,
    FleetJob,
    FleetNamespace,
    FleetOffender,
    FleetOutcome,
    FleetReport,
)
from muster.answers.fleetspend import FleetSpend, SpendPart
from muster.answers.inquiry import JobIncident
from muster.answers.jobstatus import JobStatusView, Saved, WorkerRow
from muster.answers.nodelife import NodeJob, NodeLife, NodeRepair
from muster.answers.overview import JobsTop, TopRow
from muster.answers.queue import EstimateScore, HolderRow, QueueRow, QueueView
from muster.answers.reported import Cost, EnergyUsed, JobReport, Yield
from muster.answers.scaling import ScalingSize
from muster.answers.training import OpenIncident
from muster.api.base import ApiModel
from muster.cli import doctor_cluster, doctor_parts, doctor_upgrade, top
from muster.cli.bundle import Bundle
from muster.cli.doctor import DoctorReport
from muster.cli.doctor_rows import DoctorRow
from muster.cli.leftovers import ListedObject, RemovalPlan, RemovalRow, RemovalStep
from muster.cli.main import app
from muster.cli.page import PageAddress
from muster.cli.printed import JobLogs, PodLog, Remains

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "cli.md").read_text()
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
EVERYWHERE = {"--kubeconfig", "--context", "--namespace", "--output", "--help"}


def test_every_command_is_told_of() -> None:
    assert [name for name in COMMANDS if f"kubectl muster {name}" not in TEXT] == []


def test_no_text_names_a_command_that_does_not_exist() -> None:
    named = re.compile(r"kubectl muster ([a-z][a-z-]+)(?= [A-Z-]|[`\n])")
    files = [path for folder in ("docs", "manifests", "operator") for path in (ROOT / folder).rglob("*.*")]
    texts = [path for path in files if path.suffix in {".md", ".yaml", ".py"}]
    found = {(str(path.relative_to(ROOT)), name) for path in texts for name in named.findall(path.read_text())}
    assert {(path, name) for path, name in found if name not in COMMANDS} == set()
    assert ("manifests/components/monitoring/rules.yaml", "status") in found


def test_the_example_of_top_has_its_columns() -> None:
    _, _, section = TEXT.partition("\n## `kubectl muster top`")
    heads = next(line.split() for line in section.splitlines() if line.startswith("    JOB "))
    assert heads == [*(column.head for column in top.COLUMNS), "WHY"]


@pytest.mark.parametrize("name", ["status", "top", "queue", "logs", "nodes", "page", "bundle", "doctor"])
def test_every_option_is_told_of(name: str) -> None:
    _, found, section = TEXT.partition(f"\n## `kubectl muster {name}`")
    if not found:
        _, found, section = TEXT.partition(f"\n## `kubectl muster {name} ")
    section = section.partition("\n## ")[0]
    options = {opt for param in COMMANDS[name].params for opt in param.opts if opt.startswith("--")}
    assert [opt for opt in sorted(options - EVERYWHERE) if f"`{opt}" not in section] == []


@pytest.mark.parametrize(
    ("kind", "models"),
    [
        ("JobStatus", (JobStatusView, WorkerRow, OpenIncident, Saved, JobEvent)),
        ("JobsTop", (JobsTop, TopRow)),
        ("QueueView", (QueueView, QueueRow, HolderRow, EstimateScore)),
        ("JobIncident", (JobIncident,)),
        ("JobLogs", (JobLogs, PodLog, Remains)),
        ("NodeLife", (NodeLife, NodeJob, NodeRepair)),
        ("Bundle", (Bundle,)),
        ("DoctorReport", (DoctorReport, DoctorRow)),
        ("PageAddress", (PageAddress,)),
        ("RemovalPlan", (RemovalPlan, RemovalStep, RemovalRow, ListedObject)),
    ],
)
def test_every_field_is_told_of(kind: str, models: tuple[type[ApiModel], ...]) -> None:
    section = TEXT.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    words = set(
        section.replace("`", " ").replace("{", " ").replace("}", " ").replace(",", " ").replace("[", " ").split()
    )
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert sorted(fields - words) == []


def test_every_field_and_option_of_the_fleets_report_is_told_of() -> None:
    section = TEXT.partition("\n## `kubectl muster report --fleet`\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([A-Za-z]+)`", section))
    models = (
        *(FleetReport, FleetBucket, FleetCause, FleetOffender, FleetNamespace, FleetJob),
        *(FleetOutcome, FleetSpend, SpendPart, ScalingSize),
    )
    fields = {field.alias or name for model in models for name, field in model.model_fields.items()}
    assert sorted(fields - told) == ["apiVersion", "kind"]
    options = {opt for param in COMMANDS["report"].params for opt in param.opts if opt.startswith("--")}
    of_jobs = {"--experiment", "--prometheus", "--incident", "--incidents"}
    assert [opt for opt in sorted(options - EVERYWHERE - of_jobs) if opt not in section] == []


def test_every_field_of_an_experiments_report_is_told_of() -> None:
    section = TEXT.partition("\n## `kubectl muster report --experiment NAME`\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([A-Za-z]+)`", section))
    models = (ExperimentReport, ExperimentJob, ScalingSize)
    fields = {f.alias or name for model in models for name, f in model.model_fields.items()}
    assert sorted(fields - told) == ["apiVersion", "kind"]
    assert "`--experiment NAME`" in section


def test_every_field_of_a_jobs_report_is_told_of() -> None:
    section = TEXT.partition("\n## `kubectl muster report JOB`\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([A-Za-z0-9]+)`", section))
    fields = {
        f.alias or name for model in (JobReport, Yield, Cost, EnergyUsed) for name, f in model.model_fields.items()
    }
    assert sorted(fields - told) == ["apiVersion", "kind", "name", "namespace"]
    assert all(f"`{each}`" in section for each in ("--prometheus URL", "--incidents", "--incident"))


def test_every_check_of_the_doctor_is_told_of() -> None:
    section = TEXT.partition("\n## `kubectl muster doctor`\n")[2].partition("\n## ")[0]
    told = {name for cell in re.findall(r"^\|([^|]*)\|", section, re.MULTILINE) for name in re.findall("`(.+?)`", cell)}
    assert told == {*doctor_cluster.CHECKS, *doctor_parts.CHECKS, *doctor_upgrade.CHECKS}
