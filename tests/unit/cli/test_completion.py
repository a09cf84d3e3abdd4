"""What shells are told, from the parser and from the cluster."""

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
from muster.cli import completion
from muster.cli.completion import SCRIPTS, Names, Offer, Shell, lines, wanted
from muster.cli.main import app
from muster.kube.errors import Forbidden

ROOT = get_command(app)
OPERATOR = Path(__file__).resolve().parents[3] / "operator"


def values(*words: str) -> list[str]:
    found = wanted(ROOT, words)
    assert isinstance(found, list)
    return [offer.value for offer in found]


def test_every_command_is_offered() -> None:
    assert set(values("")) == {name for name, each in ROOT.commands.items() if not each.hidden}  # type: ignore[attr-defined]
    assert values("stat") == ["status"]
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
        (("report", "llama", "--inc"), ["--incident", "--incidents"]),
        (("report", "llama", "--incident", ""), []),
        (("report", "--fleet", "-o", ""), ["table", "text", "markdown", "html", "json", "yaml"]),
        (("report", "-o", "m"), ["markdown"]),
        (("report", "llama", "-o", ""), ["table", "text", "json", "yaml"]),
        (("report", "--experiment", "lr", "--output=h"), []),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("status", "--rea"), []),
        (("cordon", "--rea"), ["--reason"]),
    ],
)
def test_options_and_their_values_come_from_the_parser(words: tuple[str, ...], says: list[str]) -> None:
    assert values(*words) == says


@pytest.mark.parametrize("name", ["status", "report", "logs", "fork", "bundle"])
def test_jobs_are_completed(name: str) -> None:
    asked = wanted(ROOT, (name, "-n", "team-b", "--context=lab", "ll"))
    assert asked == Names("trainingjobs", "ll", (None, "lab", "team-b"))


@pytest.mark.parametrize(
    "words", [("nodes", "g"), ("cordon", "a", "b", "g"), ("lost", "g"), ("check", "g"), ("release", "g")]
)
def test_nodes_are_completed(words: tuple[str, ...]) -> None:
    assert wanted(ROOT, words) == Names("nodes", "g", (None, None, None))


def test_namespaces_are_completed() -> None:
    assert wanted(ROOT, ("status", "-n", "te")) == Names("namespaces", "te", (None, None, None))
    assert wanted(ROOT, ("--namespace=te",)) == Names("namespaces", "te", (None, None, None))


def test_names_come_from_the_cluster_and_only_plain_ones(
    api: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    jobs = [
        {"metadata": {"name": name}, "status": {"state": state}}
        for name, state in (("llama", "Ru\x1bn\n:4"), ("$(rm)", ""), ("x", ""))
    ]
    api.lists(JOBS, *jobs)
    assert list(lines(ROOT, ("status", "l"), completion._read_names)) == ["llama\tRun :4", ":4"]
    assert list(lines(ROOT, ("status", ""), completion._read_names)) == ["llama\tRun :4", "x", ":4"]
    api.lists("/apis/muster.dev/v1alpha1/namespaces/team-b/trainingjobs", jobs[0])
    assert next(lines(ROOT, ("logs", "team-b/ll"), completion._read_names)) == "team-b/llama\tRun :4"
    api.errors[JOBS] = Forbidden(403, "Forbidden", "no")
    assert list(lines(ROOT, ("status", "l"), completion._read_names)) == [":4"]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert list(lines(ROOT, ("status", "l"), completion._read_names)) == [":4"]


def test_what_a_tenant_calls_his_job_is_no_command_of_the_shell() -> None:
    found = list(lines(ROOT, ("status", ""), lambda _: [Offer("`id`"), Offer("a b"), Offer("-x"), Offer("ok", "d")]))
    assert found == ["-x", "ok\td", ":4"]


def test_a_script_for_each_shell(command: Callable[..., Result]) -> None:
    for shell in Shell:
        said = command("completion", shell)
        assert said.stdout == SCRIPTS[shell]
        found = shutil.which(shell)
        if found:
            subprocess.run([found, "-n"], input=said.stdout, text=True, check=True, timeout=PATIENCE_SECONDS)
    assert command("completion", "tcsh").exit_code == 2


def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    program = tmp_path / "kubectl-muster"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={OPERATOR} exec "{sys.executable}" -m muster.cli "$@"\n')
    program.chmod(0o755)
    line = 'COMP_WORDS=(kubectl-muster status --ou); COMP_CWORD=2; _kubectl_muster; echo "${COMPREPLY[@]}"'
    result = subprocess.run(
        ["bash", "-c", f"PATH={tmp_path}:$PATH; {SCRIPTS[Shell.BASH]}\n{line}"],
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
