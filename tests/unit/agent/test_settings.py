"""Settings, thresholds, /metrics: what is taken, and what is told about what cannot be."""

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent import kinds
from muster.node.agent.agent import _EXPIRES
from muster.node.agent.settings import SettingsError, from_environment
from muster.node.agent.thresholds import DEFAULTS, TABLE, load, overridden
from muster.serve import Server, exposition, open_metrics, probe

POD = {"MUSTER_NODE": "n", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def test_in_a_pod_the_node_s_name_is_enough() -> None:
    settings = from_environment(POD)
    assert settings.api_server == "https://10.96.0.1:443"
    assert settings.kernel_log == Path("/dev/kmsg")
    assert settings.boot_id_file == Path("/proc/sys/kernel/random/boot_id")
    assert settings.expected_gpus is None


def test_everything_can_be_somewhere_else() -> None:
    names = ("KERNEL_LOG", "SYSFS", "PROC", "BOOT_ID_FILE", "SYSTEM_UUID_FILE", "MOUNTS_FILE", "THRESHOLDS")
    environment = POD | {f"MUSTER_{name}": f"/at/{name}" for name in names}
    settings = from_environment(environment | {"MUSTER_EXPECTED_GPUS": "8", "MUSTER_LISTEN": "[::1]:7"})
    assert settings.sysfs == Path("/at/SYSFS")
    assert settings.thresholds_file == Path("/at/THRESHOLDS")
    assert (settings.expected_gpus, settings.listen) == (8, ("::1", 7))


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "MUSTER_NODE"),
        ({"MUSTER_NODE": "n"}, "MUSTER_API_SERVER"),
        (POD | {"MUSTER_API_SERVER": "http://x"}, "https://"),
        (POD | {"MUSTER_EXPECTED_GPUS": "eight"}, "MUSTER_EXPECTED_GPUS"),
        (POD | {"MUSTER_LISTEN": "here"}, "MUSTER_LISTEN"),
    ],
)
def test_what_cannot_be_used_is_named(environment: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        from_environment(environment)


def test_every_threshold_has_a_unit_and_a_source() -> None:
    assert all(row.unit and row.source for row in TABLE.values())
    assert all(row.value >= row.least for name, row in TABLE.items() if name != "temperature.margin")


def test_every_threshold_is_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs/node-agent.md").read_text()
    rows = {f"| `{name}` | {row.value:g} {row.unit} | {row.source} |" for name, row in TABLE.items()}
    assert {row for row in rows if row not in text} == set()
    assert {kind for kind in kinds.STRONGEST_FIRST if f"`{kind}`" not in text} == set()


def test_a_fleet_sets_its_own() -> None:
    thresholds, problems = overridden('{"throttle.share": 0.8, "retired.pages": 64}')
    assert (thresholds["throttle.share"], thresholds["retired.pages"], problems) == (0.8, 64.0, ())
    assert thresholds["ecc.corrected"] == DEFAULTS["ecc.corrected"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "no JSON"),
        ("[]", "no JSON object"),
        ('{"x": 1}', "there is no threshold 'x'"),
        ('{"throttle.share": "a"}', "is no number"),
        ('{"throttle.share": true}', "is no number"),
        ('{"throttle.share": NaN}', "is no number"),
        ('{"nvml.deadline": 0}', "less than 0.1 s"),
    ],
)
def test_a_threshold_that_cannot_be_used_is_told_and_the_default_stays(text: str, says: str) -> None:
    thresholds, (problem,) = overridden(text)
    assert says in problem
    assert thresholds == DEFAULTS


def test_thresholds_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    assert load(None) == (DEFAULTS, ())
    _, (problem,) = load(tmp_path / "none")
    assert "cannot be read" in problem
    (tmp_path / "some").write_text(json.dumps({"nvml.deadline": 7}))
    assert load(tmp_path / "some")[0]["nvml.deadline"] == 7


def test_what_events_tell_expires() -> None:
    assert set(_EXPIRES) <= set(kinds.STRONGEST_FIRST)
    assert set(_EXPIRES.values()) <= set(TABLE)


def test_health_and_metrics_are_served(node: Any, run: Any) -> None:
    agent = run()
    agent.wait_until_looking()
    node.faults("recovery_action=1@gpu0")
    agent.wait_for(kinds.RECOVERY_ACTION)
    health = probe(lambda: "" if agent.agent.is_alive() else "stopped")
    metrics = open_metrics(lambda: exposition(agent.agent.metrics()))
    port = Server(("127.0.0.1", 0), {"/healthz": health, "/metrics": metrics}).port
    address = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_SECONDS) as answer:
        assert answer.read() == b"ok\n"
    with urllib.request.urlopen(f"{address}/metrics", timeout=PATIENCE_SECONDS) as answer:
        text = answer.read().decode()
    assert 'muster_agent_evidence{kind="RecoveryAction"} 1\n' in text
    assert "\nmuster_agent_gpus 8\n" in text
    for reason in ("Refused", "Unavailable"):
        assert f'\nmuster_agent_write_errors_total{{reason="{reason}"}} 0\n' in text
    assert text.count("\nmuster_gpu_power_watts{") == 8
    agent.stop()
    agent.agent._alive_at -= 60
    with pytest.raises(urllib.error.HTTPError, match="503"):
        urllib.request.urlopen(f"{address}/healthz", timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("text", "reached", "not_reached"),
    [
        ("127.0.0.1:0", ["127.0.0.1"], ["127.0.0.2", "[::1]"]),
        ("localhost:0", ["localhost"], ["127.0.0.2"]),
        ("[::1]:0", ["[::1]"], ["127.0.0.1"]),
        ("0.0.0.0:0", ["127.0.0.1", "127.0.0.2"], ["[::1]"]),
        ("[::]:0", ["[::1]", "127.0.0.1"], []),
        (":0", ["[::1]", "127.0.0.1"], []),
    ],
)
def test_addresses_of_both_kinds_are_served(text: str, reached: list[str], not_reached: list[str]) -> None:
    port = Server(from_environment(POD | {"MUSTER_LISTEN": text}).listen, {"/healthz": probe(str)}).port
    for host in reached:
        with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=PATIENCE_SECONDS) as answer:
            assert answer.read() == b"ok\n"
    for host in not_reached:
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=PATIENCE_SECONDS)


def test_on_a_node_without_ipv6_all_addresses_are_those_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    port = Server(("", 0), {"/healthz": probe(str)}).port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_SECONDS) as answer:
        assert answer.read() == b"ok\n"
