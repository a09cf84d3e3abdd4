"""What shells and kubectl are told, from the parser and from the cluster."""

import asyncio
import importlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import KUBECONFIG
from tests.unit.cli.test_status import JOBS
from typer.main import get_command
from typer.testing import Result

from localcluster.patience import PATIENCE_SECONDS
from muster.cli import cluster_names, main
from muster.cli.completion import Shell, answer_kubectl, offers
from muster.kube.errors import Forbidden

COMMANDS: dict[str, Any] = get_command(main.app).commands  # type: ignore[attr-defined]
OPERATOR = Path(__file__).resolve().parents[3] / "operator"
OF_JOBS = ["status", "report", "logs", "shell", "cancel", "bundle", "save", "move", "fork", "requeue", "eject"]
OF_NODES = ["nodes", "cordon", "release", "check", "lost"]
OUTPUT_HELP = "A table for people, or json or yaml for programs."


def values(*words: str) -> list[str]:
    return [offer.value for offer in offers(main.app, words[:-1], words[-1])]


@pytest.fixture
def cluster(api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An API server that a kubeconfig leads to."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return api


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """`lines(*words)`: what kubectl reads."""

    def printed(*words: str) -> list[str]:
        answer_kubectl(main.app, words)
        out, err = capsys.readouterr()
        assert err == ""
        return out.splitlines()

    return printed


def test_every_command_is_offered(lines: Callable[..., list[str]]) -> None:
    assert set(values("")) == {name for name, each in COMMANDS.items() if not each.hidden}
    assert lines("conv") == ["convert\tPrint jobs of other systems, and sbatch scripts, as TrainingJobs.", ":4"]
    assert values("-n", "team-b", "rep") == ["report"]
    assert values("stat", "x", "") == values("")  # no such command: nothing was chosen


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("status", "--out"), ["--output"]),
        (("-o", ""), ["table", "json", "yaml"]),
        (("status", "llama", "--output", "j"), ["json"]),
        (("status", "--output=y"), ["yaml"]),
        (("status", "--output", "=", "y"), ["yaml"]),
        (("status", "llama", ""), []),
        (("report", "--o"), ["--output"]),
        (("report", "llama", "--inc"), ["--incidents", "--incident"]),
        (("report", "llama", "--incident", ""), []),
        (("report", "--fleet", "-o", ""), ["table", "text", "markdown", "html", "json", "yaml"]),
        (("report", "-o", "m"), ["markdown"]),
        (("report", "llama", "-o", ""), ["table", "text", "json", "yaml"]),
        (("report", "llama", "--output=h"), []),
        (("report", "--experiment", "lr", "--output=h"), []),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("status", "--rea"), []),
        (("cordon", "--rea"), ["--reason"]),
    ],
)
def test_options_and_their_values_come_from_the_parser(words: tuple[str, ...], says: list[str]) -> None:
    assert values(*words) == says


def test_each_command_with_jobs_or_nodes_is_listed_here() -> None:
    for metavar, names in (("JOB", OF_JOBS), ("NODE", OF_NODES)):
        found = [name for name, each in COMMANDS.items() if any(param.metavar == metavar for param in each.params)]
        assert found == names


@pytest.mark.parametrize("name", OF_JOBS)
def test_jobs_are_completed(cluster: Any, name: str) -> None:
    path = "/apis/muster.dev/v1alpha1/namespaces/team-b/trainingjobs"
    cluster.lists(path, *({"metadata": {"name": each}} for each in ("llama-2", "other", "llama")))
    for words in ((name, "-n", "team-b", "--context=lab", "ll"), ("-n", "team-b", "--context", "lab", name, "ll")):
        cluster.asked.clear()
        assert values(*words) == ["llama", "llama-2"]
        assert cluster.asked == ["context lab", path]


@pytest.mark.parametrize(
    "words", [*((name, "g") for name in OF_NODES), ("cordon", "a", "b", "g"), ("move", "a", "--node", "g")]
)
def test_nodes_are_completed(cluster: Any, words: tuple[str, ...]) -> None:
    cluster.lists("/api/v1/nodes", {"metadata": {"name": "gpu-1"}}, {"metadata": {"name": "cpu-1"}})
    assert values(*words) == ["gpu-1"]


def test_namespaces_are_completed(cluster: Any) -> None:
    cluster.lists("/api/v1/namespaces", {"metadata": {"name": "team-a"}}, {"metadata": {"name": "default"}})
    for words in (("status", "-n", "te"), ("status", "llama", "-n", "te"), ("--namespace=te",)):
        assert values(*words) == ["team-a"]


def test_names_come_from_the_cluster_and_only_plain_ones(
    cluster: Any, lines: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [
        {"metadata": {"name": name}, "status": {"state": state}}
        for name, state in (("llama", "Ru\x1bn\n:4"), ("$(rm)", ""), ("`id`", ""), ("a b", ""), ("-x", ""), ("x", ""))
    ]
    cluster.lists(JOBS, *jobs)
    assert lines("status", "l") == ["llama\tRun :4", ":4"]
    assert lines("status", "") == ["llama\tRun :4", "x", ":4"]
    cluster.lists("/apis/muster.dev/v1alpha1/namespaces/team-b/trainingjobs", jobs[0])
    assert lines("logs", "team-b/ll") == ["team-b/llama\tRun :4", ":4"]
    cluster.errors[JOBS] = Forbidden(403, "Forbidden", "no")
    assert lines("status", "l") == [":4"]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert lines("status", "l") == [":4"]


def test_an_api_server_that_does_not_answer_has_no_names(
    cluster: Any, lines: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(cluster, "get", never)
    monkeypatch.setattr(cluster_names, "DEADLINE_SECONDS", 0.01)
    assert lines("status", "l") == [":4"]
    assert cluster.closed


def test_a_user_who_waits_no_longer_sees_no_error(
    cluster: Any, lines: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: Any, **__: Any) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "get", interrupted)
    assert lines("status", "l") == [":4"]


@pytest.mark.parametrize(
    ("shell", "words", "at", "says"),
    [
        ("bash", "kubectl-muster status --ou", "2", "plain,--output\n"),
        ("bash", "kubectl-muster status --output = y", "4", "plain,yaml\n"),
        ("zsh", "kubectl-muster status --ou", "2", f"plain\n--output\n{OUTPUT_HELP}\n"),
        ("zsh", "kubectl-muster status --output=y", "2", "plain\n--output=yaml\n_\n"),
        ("fish", "kubectl-muster status --ou", "--ou", f"plain,--output\t{OUTPUT_HELP}\n"),
        ("fish", "kubectl-muster status --output=y", "--output=y", "plain,--output=yaml\n"),
    ],
)
def test_the_script_of_each_shell_is_answered(
    shell: str, words: str, at: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_KUBECTL_MUSTER_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", at)
    monkeypatch.setattr(sys, "argv", ["kubectl-muster"])
    main.main()
    assert capsys.readouterr() == (says, "")


def test_a_shell_without_a_script_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_KUBECTL_MUSTER_COMPLETE", "tcsh_complete")
    monkeypatch.setattr(sys, "argv", ["kubectl-muster"])
    with pytest.raises(SystemExit, match=r"_KUBECTL_MUSTER_COMPLETE names 'tcsh', .* bash, zsh and fish"):
        main.main()


def test_a_script_for_each_shell(command: Callable[..., Result]) -> None:
    for shell in Shell:
        said = command("completion", shell)
        assert f"_KUBECTL_MUSTER_COMPLETE={shell}_complete" in said.stdout
        found = shutil.which(shell)
        if found:
            subprocess.run([found, "-n"], input=said.stdout, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert command("completion", "tcsh").exit_code == 2


def test_bash_completes_with_the_script(command: Callable[..., Result], tmp_path: Path) -> None:
    program = tmp_path / "kubectl-muster"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={OPERATOR} exec "{sys.executable}" -m muster.cli "$@"\n')
    program.chmod(0o755)
    line = 'COMP_WORDS=(kubectl-muster status --ou); COMP_CWORD=2; $function kubectl-muster; echo "${COMPREPLY[@]}"'
    function = "function=$(complete -p kubectl-muster | sed 's/.* -F \\([^ ]*\\) .*/\\1/')"
    result = subprocess.run(
        ["bash", "-c", f"PATH={tmp_path}:$PATH\n{command('completion', 'bash').stdout}\n{function}\n{line}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert result.stdout == "--output\n"


def test_each_program_that_is_installed_starts_without_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """kubectl runs kubectl_complete-muster with the words on its command line."""
    scripts = tomllib.loads((OPERATOR.parent / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"kubectl-muster", "kubectl_complete-muster"}
    for program, place in scripts.items():
        module, name = place.split(":")
        monkeypatch.setattr(sys, "argv", [program, *(["__complete"] if program == "kubectl-muster" else []), "rep"])
        getattr(importlib.import_module(module), name)()
        assert "report" in capsys.readouterr().out
