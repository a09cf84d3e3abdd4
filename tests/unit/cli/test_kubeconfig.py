"""Which cluster and namespace a command is about."""

from pathlib import Path

import pytest

from muster.cli.errors import CliError
from muster.cli.kubeconfig import Target, find

ONE = "{current-context: a, contexts: [{name: a, context: {namespace: team-a}}, {name: b, context: {}}]}"
TWO = "{current-context: c, contexts: [{name: c, context: {namespace: team-c}}, {name: a, context: {namespace: no}}]}"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "one").write_text(ONE)
    (tmp_path / "two").write_text(TWO)
    (tmp_path / "none").write_text("{contexts: [{name: a}]}")
    (tmp_path / "list").write_text("[]")
    (tmp_path / "broken").write_text("{a")
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "kubeconfig", "context", "wanted"),
    [
        ("one", None, None, ("one", "a", "team-a")),
        ("one", None, "b", ("one", "b", "default")),
        ("one", "two", None, ("two", "c", "team-c")),
        ("one:two", None, None, ("one:two", "a", "team-a")),
        ("one:two", None, "c", ("one:two", "c", "team-c")),
        ("missing:two", None, None, ("missing:two", "c", "team-c")),
    ],
    ids=["environment", "context", "option first", "first file wins", "any file's context", "missing file"],
)
def test_the_target_is_found_as_kubectl_finds_it(
    files: Path, environment: str, kubeconfig: str | None, context: str | None, wanted: tuple[str, str, str]
) -> None:
    def full(names: str) -> str:
        return ":".join(str(files / name) for name in names.split(":"))

    found = find(full(kubeconfig) if kubeconfig else None, context, {"KUBECONFIG": full(environment)}, files)
    assert found == Target(full(wanted[0]), wanted[1], wanted[2])


def test_a_home_has_a_kubeconfig(files: Path) -> None:
    (files / ".kube").mkdir()
    (files / ".kube" / "config").write_text(ONE)
    found = find(None, None, {"HOME": str(files)}, files)
    assert found == Target(str(files / ".kube" / "config"), "a", "team-a")


def test_in_a_pod_the_pods_own_credentials_are_used(files: Path) -> None:
    (files / "token").write_text("t")
    (files / "namespace").write_text("team-p\n")
    assert find(None, None, {"HOME": str(files)}, files) == Target("", "", "team-p")


@pytest.mark.parametrize(
    ("kubeconfig", "context", "says"),
    [
        ("missing", None, "there is no kubeconfig at .*missing: set KUBECONFIG or give --kubeconfig FILE"),
        ("one", "z", "has no context 'z': give --context NAME .a, b."),
        ("none", None, "has no current context: give --context NAME .a."),
        ("list", None, "is no kubeconfig"),
        ("broken", None, "cannot be read: "),
    ],
)
def test_what_is_wrong_is_said_in_one_line(files: Path, kubeconfig: str, context: str | None, says: str) -> None:
    with pytest.raises(CliError, match=says) as caught:
        find(str(files / kubeconfig), context, {}, files)
    assert "\n" not in str(caught.value)
