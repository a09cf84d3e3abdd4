"""A page that is forwarded to: its Deployment, what a kubectl does, and the whole program beside both."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from localcluster.patience import PATIENCE_SECONDS

OPERATOR = Path(__file__).resolve().parents[3] / "operator"
FORWARDS = "print('Forwarding from 127.0.0.1:41234 -> 8444', flush=True)"
FOR_EVER = "import time; time.sleep(3600)"


def deployment(ready: int = 1, replicas: int = 1, **env: str) -> dict[str, Any]:
    container = {"name": "page", "env": [{"name": name, "value": value} for name, value in env.items()]}
    return {
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready} if ready else {},
    }


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def assert_that_a_signal_ends_it(kubectl: Callable[[str], Path], tmp_path: Path, number: int) -> None:
    """The whole program, and an API server that knows one object."""

    class OneObject(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(deployment()).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), OneObject)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "me", "user": {"token": "secret-token"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    seen = kubectl(f"{FORWARDS}\n{FOR_EVER}")
    process = subprocess.Popen(
        [sys.executable, "-m", "muster.cli", "page", "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(file), "PYTHONPATH": str(OPERATOR)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "}\n":
            assert line, process.communicate()
        pid, arguments, _ = json.loads(seen.read_text())
        assert runs(pid)
        assert "secret-token" not in " ".join(arguments)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        assert (process.returncode, out, err) == (0, "", "")
        until = time.monotonic() + PATIENCE_SECONDS
        while runs(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not runs(pid)
    finally:
        process.kill()
        server.shutdown()
        server.server_close()
