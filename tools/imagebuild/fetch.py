"""Fetches, on the host, what the images are made of: a Debian base, Debian packages and locked Python wheels.

The host knows its package mirror; a build does not, and no address is written down in this repository.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from imagebuild.report import Step, run_quietly
from localcluster.cache import cache_root, digest_of, make_once

SUITE = "trixie"
# Which .debs the images are made of. It is no order to fetch these: see supply/debian.py.
DEBIAN_LOCK = Path(__file__).parents[2] / "requirements/debian.lock"
PYTHON_VERSION = "3.13"
BASE_IMAGE = "docker.io/library/debian:trixie-slim"
_GLIBC_MINOR_NEWEST = 41
_GLIBC_MINOR_OLDEST = 17
_PATH_OPTIONS = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
# mmdebstrap hands a hook the new root as $1. Without a cache of its index apt leaves nothing behind.
_NOTE_PACKAGES = (
    """chroot "$1" sh -c "dpkg-query --show --showformat='\\${Package}=\\${Version}\\n' """
    '| xargs apt-cache show -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="'
)


def images_cache() -> Path:
    """The folder of the cache that this package owns."""
    return cache_root() / "images"


def base_root() -> Path:
    """Folder with `base.tar`, a minimal Debian, `sha256`, its digest, and `Packages`, what the mirror's signed index
    says of each package in it; made on first use, and anew when the lock is another one.
    """
    command = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        *(f"--dpkgopt={option}" for option in _PATH_OPTIONS),
        SUITE,
    ]

    def make(folder: Path) -> None:
        with Step(f"base: Debian {SUITE}"):
            noted = f"--customize-hook={_NOTE_PACKAGES} > {shlex.quote(str(folder / 'Packages'))}"
            run_quietly([*command, noted, str(folder / "base.tar")])
            with (folder / "base.tar").open("rb") as file:
                (folder / "sha256").write_text(hashlib.file_digest(file, "sha256").hexdigest())

    return make_once(images_cache() / "base" / digest_of([*command, _NOTE_PACKAGES, DEBIAN_LOCK.read_bytes()]), make)


def base_digest() -> str:
    """SHA-256 of the base's archive."""
    return (base_root() / "sha256").read_text()


def debian_packages(name: str) -> Path:
    """Folder with the package `name` and everything it needs on top of the base, as .deb files."""

    def make(folder: Path) -> None:
        with Step(f"packages: {name}"), tempfile.TemporaryDirectory() as scratch:
            _download_packages(name, folder, Path(scratch))

    return make_once(images_cache() / "debs" / digest_of([base_digest(), name]), make)


def _download_packages(name: str, folder: Path, scratch: Path) -> None:
    apt = apt_for_base(scratch, archives=folder)
    run_quietly([*apt, "update"])
    run_quietly([*apt, "install", "--download-only", name])
    shutil.rmtree(folder / "partial", ignore_errors=True)
    (folder / "lock").unlink(missing_ok=True)


def apt_for_base(scratch: Path, archives: Path, kind: str = "deb") -> list[str]:
    """The host's apt-get, which solves for the base (its package status and sources) instead of for the host.

    `kind` is what it asks the base's mirrors for: packages (deb) or their sources (deb-src).
    """
    base = scratch / "base"
    base.mkdir()
    archive = str(base_root() / "base.tar")
    run_quietly(["tar", f"--directory={base}", "-xf", archive, "./etc/apt", "./var/lib/dpkg/status"])
    mirrors = base / "etc/apt/sources.list"
    mirrors.write_text(re.sub("^deb ", f"{kind} ", mirrors.read_text(), flags=re.MULTILINE))
    for directory in ("lists/partial", "cache"):
        (scratch / directory).mkdir(parents=True)
    options = {
        "Dir::Etc": base / "etc/apt",
        "Dir::Etc::TrustedParts": "/usr/share/keyrings",
        "Dir::State": scratch,
        "Dir::State::Status": base / "var/lib/dpkg/status",
        "Dir::State::Lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "Dir::Cache::Archives": archives,
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
    }
    return ["apt-get", "-q", "-y", *(f"-o{key}={value}" for key, value in options.items())]


def python_wheels(lock: Path, repository: Path, sources: tuple[str, ...] = ()) -> Path:
    """Folder with the wheels that `lock` (requirements with hashes) names, for the images' Python, and with the source
    archives of those packages that are published so alone.

    pip evaluates environment markers for the Python that runs it; a lock whose markers differ between the two would
    be noticed when the image is built, which installs from this folder alone.
    """
    platforms = [
        f"manylinux_2_{minor}_{platform.machine()}" for minor in range(_GLIBC_MINOR_NEWEST, _GLIBC_MINOR_OLDEST - 1, -1)
    ]
    targets = ["--implementation=cp", f"--python-version={PYTHON_VERSION}"]
    targets += [f"--platform={name}" for name in platforms]

    def make(folder: Path) -> None:
        with Step("wheels"):
            found = subprocess.run(
                [repository / "tools/venv.sh"], check=True, stdout=subprocess.PIPE, text=True
            ).stdout.strip()
            download = [f"{found}/bin/pip", "download", "--quiet", "--no-deps", "--require-hashes"]
            kinds = ["--only-binary=:all:", *(f"--no-binary={name}" for name in sources)]
            run_quietly([*download, *kinds, *targets, f"--dest={folder}", f"--requirement={lock}"])

    return make_once(images_cache() / "wheels" / digest_of([lock.read_bytes(), *targets, *sources]), make)
