"""The command line in this process, with an API server that is a table of answers."""

import json
import stat
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import format_datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from muster.cli.main import app
from muster.kube.client import Answers, Client
from muster.kube.errors import ApiError, NotFound

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: prod
contexts:
  - {name: prod, context: {cluster: c, user: u, namespace: team-a}}
  - {name: lab, context: {cluster: c, user: u}}
"""


class Api:
    """Answers by path; what it has no answer for is not found, as in a cluster without the kind."""

    def __init__(self) -> None:
        self.answers = Answers()
        self.bodies: dict[str, Any] = {}
        self.errors: dict[str, ApiError] = {}
        self.asked: list[str] = []
        self.written: list[tuple[str, str, Any]] = []
        self.refuses: dict[str, ApiError] = {}
        self.after_deletion: Callable[[str], None] = lambda path: None
        self.closed = False

    def is_at(self, time: datetime) -> None:
        """By the API server's clock, whatever this machine's says."""
        self.answers.heard(format_datetime(time, usegmt=True))

    def put(self, path: str, body: Mapping[str, Any]) -> None:
        self.bodies[path] = body

    def lists(self, path: str, *items: Mapping[str, Any]) -> None:
        self.bodies[path] = {"metadata": {"resourceVersion": "1"}, "items": list(items)}

    async def get(self, path: str, query: Any = None, **_: Any) -> bytes:
        self.asked.append(path)
        if path in self.errors:
            raise self.errors[path]
        if path not in self.bodies:
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        return json.dumps(self.bodies[path]).encode()

    async def post(self, path: str, body: Any, query: Any = None, **_: Any) -> bytes:
        return self._write("POST dry run" if "dryRun" in (query or {}) else "POST", path, body)

    async def patch(self, path: str, body: Any, content_type: str = "", query: Any = None, **_: Any) -> bytes:
        return self._write(f"PATCH {content_type} {dict(query or {})}", path, body)

    async def delete(self, path: str, body: Any = None, **_: Any) -> bytes:
        answer = self._write("DELETE", path, body)
        self.bodies.pop(path, None)
        self.after_deletion(path)
        return answer

    def _write(self, verb: str, path: str, body: Any) -> bytes:
        """A write that nothing refuses is answered with what the path holds."""
        if path in self.refuses:
            raise self.refuses[path]
        self.written.append((verb, path, body))
        return json.dumps(self.bodies.get(path, body)).encode()

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    """The API server that every command of the test reaches."""
    made = Api()

    async def connect(kubeconfig: str | None = None, context: str | None = None) -> Api:
        made.asked.append(f"context {context}")
        return made

    monkeypatch.setattr(Client, "connect", connect)
    return made


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`command(*arguments)`: run `kubectl muster ARGUMENTS` with a kubeconfig of two contexts."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments), prog_name="kubectl muster")

    return run


@pytest.fixture
def printed() -> Callable[..., str]:
    """`printed(render, width=80)`: what a terminal of that width would show, without colours."""

    def text(render: Callable[[Console], None], width: int = 80) -> str:
        to = StringIO()
        render(Console(file=to, width=width, markup=False, highlight=False, emoji=False, color_system=None))
        return "\n".join(line.rstrip() for line in to.getvalue().splitlines())

    return text


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Put a kubectl on the PATH that does this; it leaves its pid, its arguments and its KUBECONFIG in a file."""

    def made(does: str) -> Path:
        folder, seen = tmp_path / "bin", tmp_path / "seen"
        folder.mkdir()
        program = folder / "kubectl"
        program.write_text(
            f"#!{sys.executable}\nimport json, os, sys\nfrom pathlib import "
            f"Path\nPath({str(seen)!r}).write_text(json.dumps([os.getpid(), sys.argv[1:], "
            f"os.environ.get('KUBECONFIG')]))\n{does}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(folder))
        return seen

    return made
