"""From a fault to a proved return: the operator asks, examples/repair does it with the rights of the role
muster-repair."""

import asyncio
import contextlib
import functools
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localcluster.controlplane import ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.health.repairs import LOOK_SECONDS
from muster.kube import paths
from muster.kube.errors import NotFound
from stage.hand import patiently
from stage.health import agent_says, are_tainted, evidence, health, is_in_state
from stage.scene import Scene

ROOT = Path(__file__).resolve().parents[4]
POLICY = {"health": {"enforcement": "Nodes", "repair": {"actions": ["Reboot"]}}}
HOOK = 'touch "{folder}/begun-$NODE"; while ! test -e "{folder}/booted"; do sleep 0.1; done; echo "$ACTION of $NODE"'
LOOKS = 60.0  # seconds: the operator looks at requests every ten


@pytest.fixture
def rights(control_plane: ControlPlane, scene: Scene, tmp_path: Path) -> Path:
    """The token of a service account that has the role and nothing else."""

    def kubectl(*arguments: str, stdin: str = "") -> str:
        return subprocess.run(
            [str(control_plane.kubectl), f"--kubeconfig={control_plane.kubeconfig}", *arguments],
            input=stdin,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
        ).stdout

    roles = yaml.safe_load_all((ROOT / "manifests/components/health/user-roles.yaml").read_text())
    (role,) = (each for each in roles if each["metadata"]["name"] == "muster-repair")
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(role))
    binding = f"repair-{scene.namespace}"
    kubectl(
        "create",
        "clusterrolebinding",
        binding,
        "--clusterrole=muster-repair",
        f"--serviceaccount={scene.namespace}:default",
    )
    token = tmp_path / "token"
    token.write_text(kubectl("create", "token", "default", f"--namespace={scene.namespace}"))
    return token


@contextlib.asynccontextmanager
async def shop(control_plane: ControlPlane, token: Path, folder: Path) -> AsyncIterator[None]:
    """The example at work."""
    ours = ("--period-seconds=0.5", f"--server={control_plane.server}", f"--ca-file={control_plane.pki.ca}")
    program = (sys.executable, str(ROOT / "examples/repair/repair.py"))
    hook = ("sh", "-c", HOOK.format(folder=folder))
    process = await asyncio.create_subprocess_exec(*program, *ours, f"--token-file={token}", "--", *hook)
    try:
        yield
        assert process.returncode is None
    finally:
        (folder / "booted").touch()  # a hook that still waits ends
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def request(scene: Scene, node: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = await patiently(lambda: scene.api.get(paths.muster("repairrequests", name=node)))
    except NotFound:
        return {}
    return found


async def findings(scene: Scene, node: str) -> set[str]:
    told = (await health(scene, node)).get("findings", [])
    return {each["reason"] for each in told if each["source"] == "repair"}


async def test_a_sick_node_is_handed_over_when_it_is_empty_and_comes_back_proved(
    scene: Scene, control_plane: ControlPlane, rights: Path, tmp_path: Path
) -> None:
    await scene.add_nodes(3, "n")
    async with scene.policy(POLICY), shop(control_plane, rights, tmp_path):
        operator = await scene.operators.start()
        training = await scene.create_job(nodes=2)
        await scene.training_at(1, training)
        sick = scene.hand.worker(1).node
        await agent_says(scene, sick, evidence("Xid", 79, message="GPU has fallen off the bus"))
        await scene.eventually("the hook runs", (tmp_path / f"begun-{sick}").exists, LOOKS)
        await scene.training_at(2, training)
        gang = await scene.gang()
        assert gang
        assert sick not in [member["node"] for member in gang["members"]]
        asked = await request(scene, sick)
        assert (asked["spec"]["action"], asked["spec"]["reason"], asked["status"]["phase"]) == (
            "Reboot",
            "Xid79",
            "InProgress",
        )
        assert asked["spec"]["machine"]["systemUuid"] == f"board-of-{sick}"
        assert "GPU has fallen off the bus" in asked["spec"]["evidence"][0]["message"]

        async def says(reason: str) -> bool:
            return await findings(scene, sick) == {reason}

        await scene.eventually("it is on record", functools.partial(says, "RepairInProgress"), LOOKS)
        # A new leader, and a node that looks well: it is kept off all the same.
        await operator.kill()
        await agent_says(scene, sick, boot="boot-2")
        await scene.operators.start()
        await scene.eventually("only the repair counts", functools.partial(is_in_state, scene, sick, "Degraded"), LOOKS)
        assert await are_tainted(scene, sick)
        (tmp_path / "booted").touch()
        await scene.eventually("its end is seen", functools.partial(says, "RepairNotVerified"), LOOKS)
        assert (await request(scene, sick))["status"] == {
            "phase": "Done",
            "message": f"examples/repair: Reboot of {sick}",
        }
        assert await are_tainted(scene, sick)
        back = functools.partial(is_in_state, scene, sick, "Healthy")
        await scene.eventually("it is back", back, LOOK_SECONDS + LOOKS)
        await scene.eventually("it is used again", functools.partial(are_tainted, scene), LOOKS)

        async def nothing_is_asked() -> bool:
            return not await request(scene, sick)

        await scene.eventually("the request is gone", nothing_is_asked, LOOKS)
        incident = (await health(scene, sick))["incidents"][-1]
        assert incident["clearedBy"] == "the repair has ended, and the evidence is gone"
        reasons = {event["reason"] for event in await scene.listed("/apis/events.k8s.io/v1/events")}
        assert {"RepairRequested", "RepairInProgress", "RepairDone"} <= reasons
