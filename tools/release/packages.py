"""`kubectl muster` for those without this repository: a wheel, one file for each platform, and a manifest for krew.

The file is a PEX with the locked wheels of every Python that it runs on, for one platform. pip fetches wheels of other
platforms as well; only the file of this machine's platform can be run here.

Tests: tests/unit/release/test_packages.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from imagebuild.archive import tarball
from imagebuild.report import Step, run_quietly
from localcluster.cache import cache_root, digest_of, make_once

PYTHONS = (11, 12, 13, 14)
COMMAND = "kubectl-muster"
KREW_NAME = "muster.yaml"
_LOCK = Path("requirements/cli.txt")
_TOOLS_LOCK = Path("requirements/release.txt")


@dataclass(frozen=True)
class Platform:
    """A platform, as Kubernetes names it and as wheels do.

    Attributes:
        system: as platform.system() has it.
        machine: as platform.machine() has it.
        tags: those of its wheels, the oldest system first.
    """

    system: str
    machine: str
    tags: tuple[str, ...]


def _manylinux(machine: str) -> tuple[str, ...]:
    return (f"manylinux2014_{machine}", *(f"manylinux_2_{minor}_{machine}" for minor in range(17, 40)))


_UNIVERSAL = tuple(f"macosx_10_{minor}_universal2" for minor in range(9, 16))
# A locked package has no wheel for macOS on amd64.
PLATFORMS = {
    "darwin-arm64": Platform(
        "Darwin",
        "arm64",
        (*_UNIVERSAL, *(f"macosx_{major}_0_arm64" for major in range(11, 16)), "macosx_11_0_universal2"),
    ),
    "linux-amd64": Platform("Linux", "x86_64", _manylinux("x86_64")),
    "linux-arm64": Platform("Linux", "aarch64", _manylinux("aarch64")),
}


def write_packages(root: Path, folder: Path, version: str, epoch_seconds: int) -> None:
    """Write the wheel, the archive of the command for each platform, and krew's manifest into `folder`."""
    tools = _tools(root)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_seconds), "PEX_ROOT": str(_cache() / "pex")}
    with tempfile.TemporaryDirectory() as scratch:
        own = Path(scratch, "own")
        with Step("wheel"):
            wheel = [str(tools), "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
            run_quietly([*wheel, f"--wheel-dir={own}", str(root)], env=environment)
        for name, platform in PLATFORMS.items():
            wheels = _wheels(root, name, platform)
            with Step(f"{COMMAND} for {name}"):
                program = Path(scratch, COMMAND)
                run_quietly(_pex(tools, platform, [wheels, own], program), env=environment)
                members = {COMMAND: (program.read_bytes(), 0o755), "LICENSE": ((root / "LICENSE").read_bytes(), 0o644)}
                # What is inside is compressed already.
                (folder / archive_name(name)).write_bytes(tarball(members, compress_level=1))
        for path in own.iterdir():
            shutil.copyfile(path, folder / path.name)
    digests = {name: hashlib.sha256((folder / archive_name(name)).read_bytes()).hexdigest() for name in PLATFORMS}
    (folder / KREW_NAME).write_text(krew_manifest(version, digests))


def archive_name(platform: str) -> str:
    """The file of the release that has the command for a platform."""
    return f"{COMMAND}-{platform}.tar.gz"


def krew_manifest(version: str, digests: Mapping[str, str]) -> str:
    """Return the manifest of the plugin; `digests` has the SHA-256 of each platform's archive."""
    platforms = []
    for name, digest in digests.items():
        system, _, architecture = name.partition("-")
        platforms.append(
            {
                "selector": {"matchLabels": {"os": system, "arch": architecture}},
                "uri": f"https://muster.invalid/v{version}/{archive_name(name)}",
                "sha256": digest,
                "bin": COMMAND,
                "files": [{"from": COMMAND, "to": "."}, {"from": "LICENSE", "to": "."}],
            }
        )
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "muster"},
        "spec": {
            "version": f"v{version}",
            "shortDescription": "Show training jobs and nodes as Muster sees them",
            "description": (
                "Shows why a training job waits, where it runs, what failed and where its time went; which nodes are "
                "free, and which are unhealthy and why.\n"
            ),
            "caveats": f"It needs Python 3.{PYTHONS[0]} to 3.{PYTHONS[-1]}, and Muster in the cluster.\n",
            "platforms": platforms,
        },
    }
    return (
        "# The host muster.invalid cannot exist: name the place where you publish the archives. Without one:\n"
        f"#   kubectl krew install --manifest={KREW_NAME} --archive={archive_name('linux-amd64')}\n"
        + yaml.safe_dump(manifest, sort_keys=False, width=100)
    )


def complete_platform(platform: Platform, minor: int) -> dict[str, Any]:
    """Return what pex asks of a platform that is not this one: its tags and the variables of markers."""
    abis = [(f"cp3{minor}", f"cp3{minor}"), *((f"cp3{older}", "abi3") for older in range(minor, 1, -1))]
    abis += [(f"cp3{minor}", "none"), ("py3", "none")]
    return {
        "compatible_tags": [
            *(f"{python}-{abi}-{tag}" for python, abi in abis for tag in platform.tags),
            "py3-none-any",
        ],
        "marker_environment": {
            "implementation_name": "cpython",
            "implementation_version": f"3.{minor}.0",
            "os_name": "posix",
            "platform_machine": platform.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": platform.system,
            "platform_version": "",
            "python_full_version": f"3.{minor}.0",
            "python_version": f"3.{minor}",
            "sys_platform": platform.system.lower(),
        },
    }


def _pex(tools: Path, platform: Platform, wheels: list[Path], output: Path) -> list[str]:
    """Return the command that packs the wheels into one program."""

    def options() -> Iterator[str]:
        for minor in PYTHONS:
            path = output.with_name(f"cp3{minor}.json")
            path.write_text(json.dumps(complete_platform(platform, minor)))
            yield f"--complete-platform={path}"
        for folder in wheels:
            yield f"--pre-resolved-dists={folder}"

    start = ["--python-shebang=/usr/bin/env python3", f"--script={COMMAND}", "--venv=prepend"]
    return [str(tools), "-m", "pex", "muster-operator", *options(), *start, f"--output-file={output}"]


def _wheels(root: Path, name: str, platform: Platform) -> Path:
    """Folder with the locked wheels of every Python for a platform."""

    def make(folder: Path) -> None:
        with Step(f"wheels for {name}"):
            for minor in PYTHONS:
                run_quietly(
                    [
                        *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
                        *("--only-binary=:all:", "--implementation=cp", f"--python-version=3.{minor}"),
                        *(f"--platform={tag}" for tag in platform.tags),
                        *(f"--dest={folder}", f"--requirement={root / _LOCK}"),
                    ]
                )

    return make_once(
        _cache() / "wheels" / digest_of([(root / _LOCK).read_bytes(), repr(platform), repr(PYTHONS)]), make
    )


def _tools(root: Path) -> Path:
    """The Python of a virtual environment with what builds packages."""

    def make(folder: Path) -> None:
        with Step("tools of the release"):
            venv.create(folder, with_pip=True)
            install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--require-hashes"]
            run_quietly([*install, "--only-binary=:all:", f"--requirement={root / _TOOLS_LOCK}"])

    return (
        make_once(_cache() / "tools" / digest_of([(root / _TOOLS_LOCK).read_bytes(), sys.version]), make) / "bin/python"
    )


def _cache() -> Path:
    return cache_root() / "release"
