"""examples/repair: what it takes on, what it says of it, and that it does so once, over an API server that is
played."""

import importlib.util
import stat
import time
import urllib.error
from email.message import Message
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from localcluster.patience import PATIENCE_SECONDS
from muster.api.repairrequest import RepairPhase, RepairRequest

FOLDER = Path(__file__).parents[3] / "examples" / "repair"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_repair", FOLDER / "repair.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


repair = load()


def a_request(name: str = "a", action: str = "Reboot", at: int = 0, **status: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": f"2026-01-01T00:00:{at:02}Z",
        },
        "spec": {"node": name, "action": action, "incidentTime": "2026-01-01T00:00:00Z", "reason": "Xid79"},
        "status": status,
    }


class Played:
    """Requests, and what is written of them; `errors` are raised first."""

    def __init__(self, *requests: dict[str, Any]) -> None:
        self.there = {each["metadata"]["name"]: each for each in requests}
        self.told: list[tuple[str, str, str]] = []
        self.errors: list[int] = []

    def requests(self) -> list[dict[str, Any]]:
        return list(self.there.values())

    def tell(self, request: dict[str, Any], phase: str, message: str, only_if_unchanged: bool = False) -> None:
        if self.errors:
            raise urllib.error.HTTPError("/", self.errors.pop(0), "no", Message(), None)
        name = request["metadata"]["name"]
        assert only_if_unchanged is (phase == "InProgress")
        RepairPhase(phase)
        self.there[name] = {**self.there[name], "status": {"phase": phase, "message": repair.MINE + message}}
        self.told.append((name, phase, message))


def shop(api: Played, script: str, at_once: int = 2, actions: tuple[str, ...] = ("Reboot",)) -> Any:
    return repair.Repairs(api, ["sh", "-c", script], list(actions), at_once, 20.0)


def worked(it: Any) -> None:
    """Wait for what is being done."""
    for work in it._running.values():
        work.result(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("request_", "due"),
    [
        (a_request(), True),
        (a_request(action="Replace"), False),
        (a_request(phase="InProgress", message="ann is at it"), False),
        (a_request(phase="InProgress", message="examples/repair: Reboot begins"), True),
        (a_request(phase="Done"), False),
        (a_request(phase="Failed", message="examples/repair: no"), False),
    ],
    ids=["new", "not its trade", "somebody else's", "its own from before a restart", "done", "failed"],
)
def test_what_is_due(request_: dict[str, Any], due: bool) -> None:
    RepairRequest.model_validate(request_)
    assert repair.is_due(request_, ["Reset", "Reboot"]) is due


def test_a_request_is_taken_on_then_done_once() -> None:
    api = Played(a_request())
    it = shop(api, 'cat > /dev/null; echo noise; echo "$ACTION $NODE $REASON"')
    it.look()
    worked(it)
    it.look()
    worked(it)
    assert api.told == [("a", "InProgress", "Reboot begins"), ("a", "Done", "Reboot a Xid79")]


def test_the_command_is_given_the_whole_request() -> None:
    phase, message = repair.run_hook(a_request(), ["cat"], 20.0)
    assert phase == "Done"
    assert '"incidentTime": "2026-01-01T00:00:00Z"' in message


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["sh", "-c", "echo no power >&2; exit 3"], "sh ended with 3: no power"),
        (["/does/not/exist"], "could not be run"),
        (["sleep", "30"], "has not ended within 1 s"),
    ],
)
def test_a_repair_that_fails_says_why(command: list[str], words: str) -> None:
    phase, message = repair.run_hook(a_request(), command, 1.0)
    assert phase == "Failed"
    assert words in message


def test_what_somebody_else_took_on_or_took_back_is_let_be() -> None:
    for code in (404, 409):
        api = Played(a_request())
        api.errors = [code]
        it = shop(api, "true")
        it.look()
        assert it._running == {}
        assert api.told == []


def test_no_more_at_once_than_it_may_and_the_oldest_first(tmp_path: Path) -> None:
    api = Played(a_request("a", at=2), a_request("b", at=1), a_request("c", at=3))
    it = shop(api, f"while ! test -e {tmp_path}/go; do sleep 0.05; done")
    it.look()
    it.look()
    assert [name for name, _, _ in api.told] == ["b", "a"]
    (tmp_path / "go").touch()
    worked(it)
    it.look()
    worked(it)
    assert {name for name, phase, _ in api.told if phase == "Done"} == {"a", "b", "c"}


def test_what_came_of_it_is_told_until_somebody_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    api = Played(a_request())
    api.errors = [500, 503]
    it = shop(api, "true")
    it._repair(a_request())
    assert api.told == [("a", "Done", "done")]
    api.errors = [404]
    it._repair(a_request())
    assert len(api.told) == 1


def test_the_hook_that_nobody_has_written_fails_and_says_so() -> None:
    assert FOLDER.joinpath("hook.sh").stat().st_mode & stat.S_IXUSR
    phase, message = repair.run_hook(a_request(), [str(FOLDER / "hook.sh")], 20.0)
    assert (phase, "no way to Reboot a (Xid79) is set up" in message) == ("Failed", True)


def test_the_manifest_runs_it_with_the_rights_of_the_role() -> None:
    manifests = {each["kind"]: each for each in yaml.safe_load_all((FOLDER / "repair.yaml").read_text())}
    files = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["configMapGenerator"][0]["files"]
    pod = manifests["Deployment"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    assert {Path(word).name for word in command if word.startswith("/repair/")} == set(files)
    assert all((FOLDER / name).exists() for name in files)
    assert manifests["ClusterRoleBinding"]["roleRef"]["name"] == "muster-repair"
    (account,) = manifests["ClusterRoleBinding"]["subjects"]
    assert account["name"] == manifests["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"]
    assert account["namespace"] == manifests["Namespace"]["metadata"]["name"]
    roles = yaml.safe_load_all((FOLDER.parents[1] / "manifests/components/health/user-roles.yaml").read_text())
    (role,) = [each for each in roles if each["metadata"]["name"] == "muster-repair"]
    rights = {(what, verb) for rule in role["rules"] for what in rule["resources"] for verb in rule["verbs"]}
    assert {("repairrequests", "list"), ("repairrequests/status", "patch")} <= rights
    assert not {("repairrequests", verb) for verb in ("create", "update", "patch", "delete")} & rights
