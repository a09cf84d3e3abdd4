"""A control plane alone: etcd and the API server, and on request controller manager and scheduler.

The integration tests run one per test session on free loopback ports, without root and without nodes; the whole
cluster (`cluster`) runs the same class inside a network namespace.
"""

from __future__ import annotations

import base64
import collections
import json
import random
import secrets
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster.api import Api, wait_for
from localcluster.build import api_server, binaries
from localcluster.errors import LocalClusterError
from localcluster.patience import PATIENCE_SECONDS
from localcluster.pki import Pki, make_pki
from localcluster.processes import kill, log_tail, spawn

SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
SERVICE_ACCOUNT_ISSUER = "https://kubernetes.default.svc.cluster.local"
_LOOPBACK = "127.0.0.1"
_START_ATTEMPTS = 5
# Below the range from which the kernel takes ports of outgoing connections, so that a stopped API server's port is
# still free when it starts again.
_PORTS = (20000, 32000)


class ControlPlaneError(LocalClusterError):
    """A part of the control plane did not start."""


@dataclass(frozen=True)
class User:
    """Somebody who authenticates by token."""

    name: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))


ADMIN = "admin"
_CONTROLLER_MANAGER = "system:kube-controller-manager"
_SCHEDULER = "system:kube-scheduler"


# A program that listens on a port by then needs no reservation.
_MAX_RESERVED = 256
_reserved: collections.deque[socket.socket] = collections.deque()


def free_port() -> int:
    """A loopback port that nobody listens on now, and that nobody else is given before its user listens there.

    The reservation is a name that the kernel gives to one socket at a time, of whatever process; it goes with the
    process.
    """
    while True:
        port = random.randrange(*_PORTS)
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                reservation.bind(f"\0muster-port-{port}")
                probe.bind((_LOOPBACK, port))
            except OSError:
                reservation.close()
                continue
        _reserved.append(reservation)
        if len(_reserved) > _MAX_RESERVED:
            _reserved.popleft().close()
        return port


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) == 0


class ControlPlane:
    """One control plane in `directory`; a context manager that starts on entry and stops on exit.

    `controllers` is the controller manager's own list (`*` = all that are on by default). `address` other than
    loopback is published as the `kubernetes` Service. `users` get kubeconfigs beside admin's by `kubeconfig_of`.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        controller_manager: bool = False,
        scheduler: bool = False,
        controllers: str = "*",
        address: str = _LOOPBACK,
        port: int | None = None,
        users: Sequence[User] = (),
        api_server_arguments: Sequence[str] = (),
        controller_manager_arguments: Sequence[str] = (),
        client_queries_per_second: int | None = None,
    ) -> None:
        self.directory = Path(directory).absolute()
        self._wanted = {"kube-controller-manager": controller_manager, "kube-scheduler": scheduler}
        self._controllers = controllers
        self._address = address
        self._port = port
        self._etcd_port = 0
        self._users = {
            user.name: user
            for user in (
                User(ADMIN, ("system:masters",)),
                User(_CONTROLLER_MANAGER),
                User(_SCHEDULER),
                *users,
            )
        }
        self._api_server_arguments = tuple(api_server_arguments)
        self._controller_manager_arguments = tuple(controller_manager_arguments)
        self._client_queries_per_second = client_queries_per_second
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.RLock()
        self._binaries: Path | None = None
        self._pki: Pki | None = None
        self._temporary = False

    @classmethod
    def temporary(cls, *, controller_manager: bool = False, scheduler: bool = False) -> ControlPlane:
        """One in a new temporary folder, which goes when the context ends without an error."""
        folder = tempfile.mkdtemp(prefix="muster-controlplane-")
        made = cls(folder, controller_manager=controller_manager, scheduler=scheduler)
        made._temporary = True
        return made

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._temporary and error is None:
            shutil.rmtree(self.directory)

    @property
    def server(self) -> str:
        """The API server's address, stable over restarts once started."""
        return f"https://{self._address}:{self._port}"

    @property
    def kubeconfig(self) -> Path:
        return self.kubeconfig_of(ADMIN)

    @property
    def pki(self) -> Pki:
        if self._pki is None:
            raise ControlPlaneError("the control plane was never started: call start() first")
        return self._pki

    @property
    def kubectl(self) -> Path:
        """The kubectl program of this version."""
        return self._program("kubectl")

    @property
    def api(self) -> Api:
        """The API server as the administrator sees it."""
        return Api(self.server, self._users[ADMIN].token, self.pki.ca)

    def pids(self) -> Mapping[str, int]:
        """Process ids of the running components by name."""
        with self._lock:
            return {name: process.pid for name, process in self._processes.items() if process.poll() is None}

    def log(self, component: str) -> Path:
        return self.directory / "logs" / f"{component}.log"

    def kubeconfig_of(self, user: str) -> Path:
        return self.directory / f"{user.replace(':', '-')}.kubeconfig"

    def write_kubeconfig(self, user: str, path: Path, server: str | None = None) -> None:
        """Write a kubeconfig of `user` that reaches the API server at `server` (this one's own address by default)."""
        authority = base64.b64encode(self.pki.ca.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "local", "cluster": {"server": server or self.server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": user, "user": {"token": self._users[user].token}}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(json.dumps(content, indent=1) + "\n")

    def start(self) -> None:
        """Start everything that was asked for and wait until it is ready; `directory` keeps its data."""
        with self._lock:
            self._binaries = binaries()
            (self.directory / "logs").mkdir(parents=True, exist_ok=True)
            self._prepare_keys()
            try:
                self._on_free_ports(self._start_etcd)
                self._on_free_ports(self.start_apiserver)
                for user in self._users:
                    self.write_kubeconfig(user, self.kubeconfig_of(user))
                self._start_wanted()
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End every process; the folder stays for those who want to read the logs."""
        with self._lock:
            for name in reversed(list(self._processes)):
                kill(self._processes.pop(name))

    def start_apiserver(self) -> None:
        """Start the API server where it was before, and wait until it serves; nothing when it runs."""
        with self._lock:
            if "kube-apiserver" in self.pids():
                return
            if self._port is None:
                self._port = free_port()
            self._start("kube-apiserver", self._apiserver_command())
            self._wait("kube-apiserver", self._serves)

    def stop_apiserver(self) -> None:
        """SIGKILL the API server: connections break as in a crash."""
        self.kill_component("kube-apiserver")

    def restart_apiserver(self) -> None:
        """Stop and start the API server; address, data and tokens stay."""
        self.stop_apiserver()
        self.start_apiserver()

    def kill_component(self, name: str) -> None:
        """SIGKILL one component."""
        with self._lock:
            process = self._processes.pop(name, None)
            if process is not None:
                kill(process)

    def _program(self, name: str) -> Path:
        programs = self._binaries or binaries()
        return api_server(programs) if name == "kube-apiserver" else programs / name

    def _prepare_keys(self) -> None:
        folder = self.directory / "pki"
        if folder.exists():
            self._pki = Pki(folder)
        else:
            addresses = sorted({_LOOPBACK, KUBERNETES_SERVICE_ADDRESS, self._address})
            names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
            alternatives = [f"DNS:{name}" for name in (*names, "kubernetes.default.svc.cluster.local")]
            self._pki = make_pki(folder, [*alternatives, *(f"IP:{address}" for address in addresses)])
        lines = [f'{user.token},{user.name},{user.name},"{",".join(user.groups)}"' for user in self._users.values()]
        tokens = self.directory / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text("\n".join(lines) + "\n")

    def _on_free_ports(self, start: Callable[[], None]) -> None:
        """Somebody may take a free port before our component listens there: try again with another."""
        fixed = self._port
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                start()
            except ControlPlaneError as error:
                if attempt == _START_ATTEMPTS or "address already in use" not in str(error):
                    raise
                self._port = fixed
            else:
                return

    def _start(self, name: str, command: Sequence[str]) -> None:
        if name in self.pids():
            raise ControlPlaneError(f"{name} is running already: stop it first")
        self._processes[name] = spawn([str(self._program(name)), *command], self.log(name))

    def _wait(self, name: str, ready: Callable[[], bool]) -> None:
        def ready_or_dead() -> bool:
            if self._processes[name].poll() is not None:
                tail = log_tail(self.log(name))
                raise ControlPlaneError(f"{name} ended at its start; its log {self.log(name)} says:\n{tail}")
            return ready()

        try:
            wait_for(ready_or_dead, f"{name} ready", PATIENCE_SECONDS)
        except LocalClusterError as error:
            self.kill_component(name)
            if isinstance(error, ControlPlaneError):
                raise
            raise ControlPlaneError(f"{error}; its log is {self.log(name)}") from error

    def _start_etcd(self) -> None:
        self._etcd_port, peer = free_port(), free_port()
        client_url, peer_url = f"http://{_LOOPBACK}:{self._etcd_port}", f"http://{_LOOPBACK}:{peer}"
        self._start(
            "etcd",
            [
                f"--data-dir={self.directory / 'etcd'}",
                # A power cut of the machine that runs the tests may lose this data; nothing else can.
                "--unsafe-no-fsync",
                f"--listen-client-urls={client_url}",
                f"--advertise-client-urls={client_url}",
                f"--listen-peer-urls={peer_url}",
                f"--initial-advertise-peer-urls={peer_url}",
                f"--initial-cluster=default={peer_url}",
                "--log-level=warn",
            ],
        )
        self._wait("etcd", lambda: _listens(self._etcd_port))

    def _apiserver_command(self) -> list[str]:
        pki = self.pki
        published = self._address != _LOOPBACK
        return [
            f"--etcd-servers=http://{_LOOPBACK}:{self._etcd_port}",
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={self._port}",
            f"--client-ca-file={pki.ca}",
            f"--tls-cert-file={pki.serving}",
            f"--tls-private-key-file={pki.serving_key}",
            f"--kubelet-client-certificate={pki.kubelet_client}",
            f"--kubelet-client-key={pki.kubelet_client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            f"--service-account-issuer={SERVICE_ACCOUNT_ISSUER}",
            f"--service-account-key-file={pki.service_accounts}",
            f"--service-account-signing-key-file={pki.service_accounts_key}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            # Nobody routes Service addresses where the API server runs: webhooks are reached by their endpoints.
            "--enable-aggregator-routing=true",
            # The API server refuses to publish a loopback address as the `kubernetes` Service.
            f"--endpoint-reconciler-type={'lease' if published else 'none'}",
            *self._api_server_arguments,
        ]

    def _serves(self) -> bool:
        return self.api.raw("/readyz") == "ok" and bool(self.api.get("/api/v1/namespaces/default"))

    def start_controller_manager(self) -> None:
        """Start the controller manager and wait until it listens, where it was not asked for from the beginning."""
        with self._lock:
            self._on_free_ports(lambda: self._start_client("kube-controller-manager", self._controller_manager_command))

    def _start_wanted(self) -> None:
        if self._wanted["kube-controller-manager"]:
            self.start_controller_manager()
        if self._wanted["kube-scheduler"]:
            self._on_free_ports(lambda: self._start_client("kube-scheduler", self._scheduler_command))

    def _start_client(self, name: str, command: Callable[[int], list[str]]) -> None:
        port = free_port()
        self._start(name, command(port))
        self._wait(name, lambda: _listens(port))

    def _controller_manager_command(self, port: int) -> list[str]:
        rate = self._client_queries_per_second
        return [
            f"--secure-port={port}",
            f"--bind-address={_LOOPBACK}",
            f"--kubeconfig={self.kubeconfig_of(_CONTROLLER_MANAGER)}",
            f"--service-account-private-key-file={self.pki.service_accounts_key}",
            f"--root-ca-file={self.pki.ca}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            f"--controllers={self._controllers}",
            *([] if rate is None else [f"--kube-api-qps={rate}", f"--kube-api-burst={2 * rate}"]),
            *self._controller_manager_arguments,
        ]

    def _scheduler_command(self, port: int) -> list[str]:
        client: dict[str, object] = {"kubeconfig": str(self.kubeconfig_of(_SCHEDULER))}
        if self._client_queries_per_second is not None:
            client |= {"qps": self._client_queries_per_second, "burst": 2 * self._client_queries_per_second}
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": client,
        }
        path = self.directory / "scheduler.json"
        path.write_text(json.dumps(configuration))
        return [f"--secure-port={port}", f"--bind-address={_LOOPBACK}", f"--config={path}"]
