"""The energy of a job's nodes out of a real Prometheus: counters of a DCGM exporter, through the shipped rules, to what
`report` asks."""

import contextlib
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from localcluster.controlplane import free_port
from localcluster.patience import PATIENCE_SECONDS
from monitoring.live import RULES
from monitoring.prometheus import programs
from muster.cli.prometheus import metered_energy

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SAMPLES = 240
EVERY = 30
PASSES = ((0, 3), (1,), (2,), (4, 5))
"""Which rules need none of those after them: promtool does not show one rule what another one records."""


def a_counter(node: str, gpu: int, watts: int) -> tuple[str, list[float]]:
    """In millijoules; the machine starts anew after an hour."""
    labels = f'gpu="{gpu}",UUID="GPU-{node}-{gpu}",Hostname="{node}",DCGM_FI_DRIVER_VERSION="1"'
    values = [float(watts * EVERY * 1000 * (at if at < 120 else at - 119)) for at in range(SAMPLES)]
    return f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{labels}}}", values


def scraped() -> str:
    """Two hours as OpenMetrics: a job that holds two nodes of two GPUs and one of one from 00:10 to 01:10, and a node
    of others."""
    counters = [a_counter("a", 0, 400), a_counter("a", 1, 600), a_counter("others", 0, 700)]
    agents = [('muster_gpu_energy_joules_total{gpu="GPU-c",node="c"}', [700.0 * EVERY * at for at in range(SAMPLES)])]
    gauges = [
        (f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu}",hostname="b"}}', [float(watts)] * SAMPLES)
        for gpu, watts in ((0, 300), (1, 500))
    ]
    held = [None if not 20 <= at <= 140 else 1.0 for at in range(SAMPLES)]
    nodes = [(f'muster_job_node{{namespace="ns",job_name="llama",node="{node}"}}', held) for node in "abc"]
    lines = []
    for series in (counters, agents, gauges, nodes):
        lines.append(f"# TYPE {series[0][0].partition('{')[0]} unknown")
        lines += [
            f"{name} {value} {int(BEGIN.timestamp()) + at * EVERY}"
            for name, values in series
            for at, value in enumerate(values)
            if value is not None
        ]
    return "\n".join([*lines, "# EOF", ""])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[str]:
    """A Prometheus on what is in the folder; its address."""
    port = free_port()
    (folder / "prometheus.yml").write_text("{}\n")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                str(programs() / "prometheus"),
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=30):
                break
            assert process.poll() is None, "Prometheus has ended"
            assert time.monotonic() < until, "Prometheus does not get ready"
            time.sleep(0.2)
        yield url
    finally:
        process.kill()
        process.wait()


def promtool(*arguments: str | Path) -> None:
    command = [str(programs() / "promtool"), "tsdb", "create-blocks-from", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One in which the shipped rules of a job's energy have been evaluated every 30 s for two hours."""
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "scraped.txt").write_text(scraped())
    promtool("openmetrics", folder / "scraped.txt", folder / "tsdb")
    groups = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    (group,) = [each for each in groups if each["name"] == "muster-energy"]
    assert group["interval"] == f"{EVERY}s"
    assert sorted(place for places in PASSES for place in places) == [*range(len(group["rules"]))]
    for places in PASSES:
        rules = [group["rules"][place] for place in places]
        (folder / "rules.yml").write_text(yaml.safe_dump({"groups": [{**group, "rules": rules}]}))
        end = BEGIN + timedelta(seconds=(SAMPLES - 1) * EVERY)
        with running(folder) as url:
            promtool(
                "rules",
                f"--start={BEGIN.isoformat()}",
                f"--end={end.isoformat()}",
                f"--eval-interval={EVERY}s",
                f"--url={url}",
                f"--output-dir={folder / 'tsdb'}",
                folder / "rules.yml",
            )
    with running(folder) as url:
        yield url


async def test_the_energy_of_a_job_is_that_of_its_nodes_while_it_held_them(prometheus: str) -> None:
    """1,000 W by counters that begin anew at 01:00, 700 W by the agent and 800 W by gauges, for an hour of five
    GPUs."""
    found = await metered_energy(
        prometheus, "ns", "llama", BEGIN + timedelta(minutes=10), BEGIN + timedelta(minutes=70)
    )
    assert found.gpu_seconds == 5 * 3600
    # In the two minutes after the counters' new beginning their rate is a guess by what they had reached.
    assert found.joules == pytest.approx(2500 * 3600, rel=0.01)
    half = await metered_energy(prometheus, "ns", "llama", BEGIN, BEGIN + timedelta(minutes=40))
    assert (half.joules, half.gpu_seconds) == (pytest.approx(2500 * 1800), 5 * 1800)


@pytest.mark.parametrize("job", ["other", "llam.*"])
async def test_of_another_job_there_is_nothing(prometheus: str, job: str) -> None:
    found = await metered_energy(prometheus, "ns", job, BEGIN, BEGIN + timedelta(hours=2))
    assert (found.joules, found.gpu_seconds) == (0, 0)
