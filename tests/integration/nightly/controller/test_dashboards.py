"""Every query of every dashboard, put to a real Prometheus that scrapes a real operator with a real job, and the
recording rules.

What does not happen within a test's time (a breaker that holds, a day's burn-in, GPUs) is told to the same classes by
hand, in a second process that Prometheus scrapes beside the operator; the node agent's figures come out of the agent's
own method. Both jobs' pages are asked: what holds for a job that trains is asked of the operator's.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from localcluster.controlplane import ControlPlane, free_port
from localcluster.patience import PATIENCE_SECONDS
from monitoring.dashboards import DASHBOARDS, Panel, rendered
from monitoring.dashboards import Query as Asked
from monitoring.live import SCRAPE_SECONDS, Prometheus, asked, here, put
from muster.protocol.messages import Report
from stage.health import agent_says, evidence, is_in_state
from stage.launcher import Launcher
from stage.operators import OperatorProcess
from stage.scene import Scene

ROOT = Path(__file__).resolve().parents[4]
TOLD_BY_HAND = ROOT / "tests/integration/controller/stage/figures_server.py"
BY_HAND = {"namespace": "by-hand", "job_name": "waits"}
# Of the job's page, what a job that is well has no series of; the one that is told by hand has.
OF_TROUBLE = {"Not running for", "Concerns", "Firing alerts"}
# What scripted launchers cannot tell: checkpoints that have files. Their job has no spec.throughput, and their nodes no
# agents.
NOT_SCRIPTED = {
    *("Duration of a save", "Size and free space"),
    *("Tokens per second", "MFU", "Cost per million tokens", "Power of the job's nodes"),
}


def told_by_hand(figures: int, agent: int) -> subprocess.Popen[bytes]:
    """The second process; it serves on these ports."""
    return subprocess.Popen(
        [sys.executable, str(TOLD_BY_HAND), str(figures), str(agent), BY_HAND["namespace"], BY_HAND["job_name"]],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


@contextlib.asynccontextmanager
async def watched(scene: Scene, folder: Path, operator: OperatorProcess) -> AsyncIterator[Prometheus]:
    """Prometheus, with the operator, and with what is told by hand."""
    figures, agent = free_port(), free_port()
    by_hand = told_by_hand(figures, agent)
    prometheus = Prometheus(
        folder,
        [
            here("muster", operator.metrics_port, {}, operator.token),
            here("by-hand", figures, {}),
            here("agent", agent, {"node": "by-hand"}),
        ],
    )
    try:
        yield prometheus
        assert by_hand.poll() is None
    finally:
        prometheus.close()
        by_hand.kill()
        by_hand.wait()


CHOSEN = {"probe": "gemm-bf16", "model": "H200"}


def wanted(real: dict[str, str]) -> list[tuple[Panel, Asked, dict[str, str]]]:
    """Every query that has to find something, with what is chosen at the top."""
    return [
        (panel, query, {**CHOSEN, **job})
        for _, panel, query, job in asked((real, BY_HAND))
        if job is not real or panel.title not in OF_TROUBLE | NOT_SCRIPTED
    ]


@pytest.fixture
def steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripted launchers tell when their steps were made, as real ones do."""
    plain = Launcher._report
    first: dict[tuple[str, int], tuple[int, float]] = {}  # pod and attempt -> the first step and when it was made

    def told(launcher: Launcher, hold_seconds: float) -> Report:
        report = plain(launcher, hold_seconds)
        if report.step is None or report.step_age_seconds is None:
            return report
        now = time.monotonic()
        step, at = first.setdefault(
            (launcher.identity.pod, report.attempt), (report.step, now - report.step_age_seconds)
        )
        return replace(
            report, first_step=step, first_step_age_seconds=now - at, step_seconds=0.02, step_p90_seconds=0.03
        )

    monkeypatch.setattr(Launcher, "_report", told)


@pytest.mark.usefixtures("steps_are_timed")
async def test_every_query_finds_what_a_real_operator_and_its_job_tell(scene: Scene, tmp_path: Path) -> None:
    names = await scene.add_nodes(4, "n", racks=2)
    await agent_says(scene, names[3], evidence("RowRemapPending"))
    operator = await scene.operators.start()
    training = await scene.create_job(training={"last_step": 100_000})
    await scene.training_at(1, training)
    await scene.told_step(training)
    scene.hand.launchers()[2].fail(signal=9)
    await scene.training_at(2, training)
    training.hold_at = 40
    await scene.training_at(2, training)
    waits = await scene.create_job("waits", nodes=4)
    assert waits.step == 0
    await scene.eventually("the sick node is found", lambda: is_in_state(scene, names[3], "Degraded"))
    real = {"namespace": scene.namespace, "job_name": "job"}
    async with watched(scene, tmp_path, operator) as prometheus:
        until, waiting = time.monotonic() + PATIENCE_SECONDS, wanted(real)
        while True:
            waiting = [each for each in waiting if not await asyncio.to_thread(prometheus.answers, *each)]
            if not waiting:
                break
            assert time.monotonic() < until, [(panel.title, put(query.expr, job)) for panel, query, job in waiting]
            training.hold_at += 2  # it goes on
            await asyncio.sleep(SCRAPE_SECONDS)
        await the_page_shows_what_the_status_tells(scene, prometheus, real)
        await choices_are_offered(prometheus, real)


async def the_page_shows_what_the_status_tells(scene: Scene, prometheus: Prometheus, job: dict[str, str]) -> None:
    """The same numbers on the page and in the job, once it stands still."""
    page = next(each for each in DASHBOARDS if each.uid == "muster-job")
    expr = {panel.title: put(panel.queries[0].expr, job) for panel in page.panels}

    async def same() -> bool:
        status = (await scene.job())["status"]
        account = status["goodput"]
        shown = {
            each["metric"]["bucket"]: float(each["value"][1])
            for each in await asyncio.to_thread(prometheus.now, expr["Time by bucket"])
        }
        figures = {
            title: float((await asyncio.to_thread(prometheus.now, expr[title]))[0]["value"][1])
            for title in ("ETTR", "Failures", "Lost steps", "Steps")
        }
        return shown == account["seconds"] and figures == {
            "ETTR": account["ettrPermille"] / 1000,
            "Failures": account["failures"],
            "Lost steps": account["lostSteps"],
            "Steps": status["step"],
        }

    await scene.eventually("the page's numbers are the status's", same)
    assert float((await asyncio.to_thread(prometheus.now, expr["Failures"]))[0]["value"][1]) == 1
    assert float((await asyncio.to_thread(prometheus.now, expr["Lost steps"]))[0]["value"][1]) == 2


async def choices_are_offered(prometheus: Prometheus, job: dict[str, str]) -> None:
    """What the variables at the top are asked for has the values that were chosen."""
    chosen = {**CHOSEN, **job}
    for dashboard in DASHBOARDS:
        for variable in dashboard.variables:
            values = await asyncio.to_thread(prometheus.values_of, variable.label, put(variable.metric, chosen))
            assert chosen[variable.name] in values, (dashboard.uid, variable)


def test_an_overlay_with_the_component_has_each_page_as_a_config_map(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    def path(folder: str) -> str:
        return os.path.relpath(ROOT / "manifests" / folder, tmp_path.resolve())

    overlay = {"resources": [path("overlays/default")], "components": [path("components/monitoring")]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    made = subprocess.run(
        [str(control_plane.kubectl), "kustomize", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    maps = [
        each
        for each in yaml.safe_load_all(made.stdout)
        if each["kind"] == "ConfigMap" and (each["metadata"].get("labels") or {}).get("grafana_dashboard") == "1"
    ]
    assert {each["metadata"]["namespace"] for each in maps} == {"muster-system"}
    shipped = {name: json.loads(text) for each in maps for name, text in each["data"].items()}
    assert shipped == {f"{each.uid}.json": json.loads(rendered(each)) for each in DASHBOARDS}
