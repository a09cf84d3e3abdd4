"""`kubectl muster page`: whose page, which kubectl, and how it ends; the kubectl here is a script that says what a test
wants."""

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.forwarding import FOR_EVER, FORWARDS, assert_that_a_signal_ends_it, deployment, runs
from typer.testing import Result

from muster.cli import page
from muster.cli.errors import CliError
from muster.kube.errors import Forbidden

PATH = "/apis/apps/v1/namespaces/muster-page/deployments/muster-page"
Run = Callable[..., Result]


def failed(result: Result) -> str:
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_the_page_address_is_printed_and_a_lost_connection_reported(
    command: Run, api: Any, kubectl: Callable[[str], Path], tmp_path: Path
) -> None:
    """The address is printed when the port is forwarded."""
    api.put(PATH, deployment())
    seen = kubectl(FORWARDS)  # and ends
    result = command("page", "--context", "lab", "-o", "json")
    assert result.exit_code == 1
    assert result.stderr == "error: the connection to the page was lost: run the command again\n"
    told = json.loads(result.stdout)
    assert (told["url"], told["namespace"]) == ("http://127.0.0.1:41234", "muster-page")
    _, arguments, environment = json.loads(seen.read_text())
    assert arguments == [
        "port-forward",
        "--address=127.0.0.1",
        "--namespace=muster-page",
        "--context=lab",
        "deployment/muster-page",
        ":8444",
    ]
    assert environment == str(tmp_path / "kubeconfig")


def test_another_port_and_https_are_as_the_deployment_and_the_user_say(
    command: Run, api: Any, kubectl: Callable[[str], Path]
) -> None:
    api.put(
        PATH.replace("namespaces/muster-page", "namespaces/mine"),
        deployment(MUSTER_PAGE_PORT="9000", MUSTER_PAGE_TLS="/tls"),
    )
    seen = kubectl("print('Forwarding from 127.0.0.1:7000 -> 9000', flush=True)")
    result = command("-n", "mine", "page", "--port", "7000")
    assert "https://localhost:7000\n" in result.stdout
    assert "paste a token" in result.stdout
    assert json.loads(seen.read_text())[1][-1] == "7000:9000"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "kubectl apply -k manifests/overlays/page"),
        (deployment(ready=0), "is not ready"),
        (deployment(ready=0, replicas=0), "is switched off"),
        (
            Forbidden(
                403,
                "Forbidden",
                'deployments.apps "muster-page" is forbidden',
                {"kind": "deployments", "group": "apps"},
            ),
            "Role muster-page-user in namespace muster-page",
        ),
    ],
)
def test_a_page_that_cannot_be_reached_is_told_with_a_remedy(
    command: Run, api: Any, kubectl: Callable[[str], Path], answer: Any, words: str
) -> None:
    seen = kubectl(FORWARDS)
    if isinstance(answer, Forbidden):
        api.errors[PATH] = answer
    elif answer is not None:
        api.put(PATH, answer)
    assert words in failed(command("page"))
    assert not seen.exists(), "nothing is forwarded to it"


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("Error from server (Forbidden): pods is forbidden", "Role muster-page-user"),
        ("unable to listen on port 7000:\\n address already in use\\x1b[31m", "or another --port"),
    ],
)
def test_what_kubectl_says_is_told_in_one_line(
    command: Run, api: Any, kubectl: Callable[[str], Path], says: str, words: str
) -> None:
    api.put(PATH, deployment())
    kubectl(f"sys.stderr.write('{says}\\n'); sys.exit(1)")
    line = failed(command("page"))
    assert words in line
    assert "\x1b" not in line


def test_without_a_kubectl_it_says_so(command: Run, api: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    api.put(PATH, deployment())
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no kubectl on the PATH" in failed(command("page"))


def test_a_kubectl_that_says_nothing_is_ended(kubectl: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kubectl(FOR_EVER)
    monkeypatch.setattr(page, "START_SECONDS", 0.5)
    target = page.config.Target("", "", "default")
    with (
        pytest.raises(CliError, match="said nothing"),
        page.forwarding(target, "muster-page", page.Served()),
    ):
        pass
    assert not seen.exists() or not runs(json.loads(seen.read_text())[0])


def test_a_signal_ends_it_and_its_kubectl_without_a_word(kubectl: Callable[[str], Path], tmp_path: Path) -> None:
    """That of Ctrl-C takes the same way, and is tried in the nightly tests."""
    assert_that_a_signal_ends_it(kubectl, tmp_path, signal.SIGTERM)
