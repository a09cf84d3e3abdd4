"""What the node agent costs: `python -m bench.agent [--seconds 600]` writes build/bench/agent.json.

The real two processes, with the fake NVML library: 8 GPUs, each call of which burns the CPU time that it took on a real
H200 (an upper bound: there it is partly waiting), 8 InfiniBand ports, and an API server that takes what it is sent.
Then a flood of one XID, 10,000 lines a second.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.fakes.nvml.build import library

from bench.processes import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "build/bench/agent.json"
GPUS, PORTS = 8, 8
PSS_BUDGET_MB, CORE_BUDGET = 80.0, 0.01
_FLOOD_LINES, _FLOOD_SECONDS, _FLOOD_STEPS = 10_000, 10, 20
_SETTLE_SECONDS = 20.0
_XID = "NVRM: Xid (PCI:0000:11:00): 31, pid=4242, name=python, Ch 00000008, intr 00000000. MMU Fault"


def _certificate(folder: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that signs itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bench")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "server.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return path


class Server:
    """Takes applies and remembers the last; no object is there at first."""

    def __init__(self, folder: Path) -> None:
        outer = self
        self.writes = 0
        self.status: dict[str, Any] = {}

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(200 if outer.status else 404, {"status": outer.status})

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.writes += 1
                outer.status = body.get("status", {})
                self._answer(200, body)

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                """Silent."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(folder))
        server = HTTPServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()


def _node(folder: Path) -> None:
    for port in range(PORTS):
        path = folder / f"sys/class/infiniband/mlx5_{port}/ports/1"
        for part, counters in {
            "counters": ("link_downed", "symbol_error", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
                         "excessive_buffer_overrun_errors", "local_link_integrity_errors"),
            "hw_counters": ("rnr_nak_retry_err", "local_ack_timeout_err", "roce_slow_restart"),
        }.items():  # fmt: skip
            (path / part).mkdir(parents=True)
            for counter in counters:
                (path / part / counter).write_text("0\n")
        (path / "state").write_text("4: ACTIVE\n")
        (path / "phys_state").write_text("5: LinkUp\n")
    (folder / "proc/1").mkdir(parents=True)
    (folder / "proc/1/mounts").write_text("/dev/nvme0n1p1 / ext4 rw,relatime 0 0\n")
    (folder / "boot_id").write_text("bench\n")
    (folder / "kmsg").touch()
    (folder / "token").write_text("bench")
    (folder / "control").write_text(f"gpus={GPUS}\nbusy=1\nnvlinks=18\n")


def _start(folder: Path, server: Server) -> subprocess.Popen[bytes]:
    files = {"TOKEN_FILE": "token", "CA_FILE": "ca.crt", "KERNEL_LOG": "kmsg", "SYSFS": "sys", "PROC": "proc"}
    environment = {
        **os.environ,
        **{f"MUSTER_{name}": str(folder / file) for name, file in files.items()},
        "MUSTER_BOOT_ID_FILE": str(folder / "boot_id"),
        "MUSTER_NODE": "bench",
        "MUSTER_API_SERVER": f"https://127.0.0.1:{server.port}",
        "MUSTER_LISTEN": "127.0.0.1:0",
        "LD_LIBRARY_PATH": str(library()),
        "FAKE_NVML_CONTROL": str(folder / "control"),
        "PYTHONPATH": str(ROOT / "operator"),
    }
    log = (folder / "agent.log").open("wb")
    return subprocess.Popen([sys.executable, "-m", "muster.agent"], env=environment, stderr=log)


def _pids(parent: int) -> dict[str, int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    if len(children) != 1:
        raise RuntimeError(f"the agent has {len(children)} children, not one: see its log")
    return {"agent": parent, "nvml": int(children[0])}


def _memory_mb(pid: int, what: str = "Pss") -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"the kernel does not tell the {what} of process {pid}")


def _flood(folder: Path) -> None:
    for _ in range(_FLOOD_SECONDS * _FLOOD_STEPS):
        began = time.monotonic()
        moment = int(began * 1e6)
        with (folder / "kmsg").open("a") as stream:
            stream.writelines(f"4,1,{moment + n},-;{_XID} {n}\n" for n in range(_FLOOD_LINES // _FLOOD_STEPS))
        time.sleep(max(0.0, 1 / _FLOOD_STEPS - (time.monotonic() - began)))


def measure(seconds: float) -> dict[str, Any]:
    """Run the agent for so long, then the flood.

    Raises:
        RuntimeError: the agent did not run as it should.
    """
    with tempfile.TemporaryDirectory(prefix="muster-bench-agent-") as name:
        folder = Path(name)
        _node(folder)
        server = Server(folder)
        process = _start(folder, server)
        try:
            time.sleep(_SETTLE_SECONDS)
            if server.status.get("agent", {}).get("gpus") != GPUS or server.status["evidence"]:
                raise RuntimeError(f"the agent did not find {GPUS} healthy GPUs: {server.status}")
            pids = _pids(process.pid)
            quiet_writes, before, began = server.writes, cpu_seconds(pids), time.monotonic()
            time.sleep(seconds)
            took, after = time.monotonic() - began, cpu_seconds(pids)
            cpu = {part: round(after[part] - before[part], 2) for part in pids}
            pss = {part: round(_memory_mb(pid), 1) for part, pid in pids.items()}
            # PSS is shared with whatever other Python runs on this machine; this is not, and no less than PSS alone.
            rss = sum(_memory_mb(pid, "Rss") for pid in pids.values())
            quiet_writes = server.writes - quiet_writes
            flooded, writes, began = cpu_seconds(pids), server.writes, time.monotonic()
            _flood(folder)
            time.sleep(2.0)
            flood_took = time.monotonic() - began
            flood_cpu = sum(cpu_seconds(pids).values()) - sum(flooded.values())
            evidence = [(item["kind"], item["code"], item["count"]) for item in server.status["evidence"]]
            if [item[0] for item in evidence] != ["Xid"] or _pids(process.pid) != pids:
                raise RuntimeError(f"after the flood there is {evidence}")
            return {
                "gpus": GPUS,
                "ports": PORTS,
                "seconds": round(took, 1),
                "nvml_calls": "burn what they took on a real H200",
                "cpu_seconds": cpu,
                "core_share": round(sum(cpu.values()) / took, 5),
                "pss_mb": {**pss, "total": round(sum(pss.values()), 1)},
                "rss_mb": round(rss, 1),
                "pss_after_flood_mb": round(sum(_memory_mb(pid) for pid in pids.values()), 1),
                "writes_while_quiet": quiet_writes,
                "flood": {
                    "lines_per_second": _FLOOD_LINES,
                    "seconds": _FLOOD_SECONDS,
                    "core_share": round(flood_cpu / flood_took, 4),
                    "evidence": len(evidence),
                    "writes": server.writes - writes,
                },
                "budget": {"core_share": CORE_BUDGET, "pss_mb": PSS_BUDGET_MB},
            }
        finally:
            process.terminate()
            process.wait(10)


def main() -> int:
    """Measure, write, and fail if a budget is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    found = measure(parser.parse_args().seconds)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    return int(found["core_share"] > CORE_BUDGET or found["pss_mb"]["total"] > PSS_BUDGET_MB)


if __name__ == "__main__":
    sys.exit(main())
