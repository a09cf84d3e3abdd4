"""Which images there are, what each is made of, and the digest that names a build of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from localcluster.cache import digest_of
from recipes.table import FRAMEWORKS, RECIPES, TORCH

_WITHOUT_LIBUV = "images/trainer/without-libuv.sh"


def _programs(image: str) -> tuple[str, ...]:
    return tuple(f"examples/{name}/train.py" for name, its in RECIPES.items() if its == image)


RUN_PYZ = "build/run.pyz"
SCRIPTS = ("images/install-packages.sh", "images/install-wheels.sh")


@dataclass(frozen=True)
class Image:
    """One image.

    Attributes:
        name: how the rest of the project calls it.
        repository: name in a registry, behind the prefix.
        dockerfile: path in the repository, which is also the build context.
        sources: files and folders that the Dockerfile reads.
        packages: Debian packages that the Dockerfile installs, over all its stages.
        lock: of the Python wheels that it installs; one of `sources`.
        built: those packages of the lock that are published as source alone.
        optional: only built where it is asked for by name.
    """

    name: str
    repository: str
    dockerfile: str
    sources: tuple[str, ...]
    packages: tuple[str, ...]
    lock: str = ""
    built: tuple[str, ...] = ()
    optional: bool = False


IMAGES = (
    Image(
        "operator",
        "muster/operator",
        "images/operator/Dockerfile",
        ("requirements/operator.txt", "operator/muster"),
        ("python3", "python3-venv"),
        lock="requirements/operator.txt",
    ),
    Image(
        "agent",
        "muster/agent",
        "images/agent/Dockerfile",
        (
            "requirements/agent.txt",
            "operator/muster/__init__.py",
            "operator/muster/serve.py",
            "operator/muster/node/__init__.py",
            "operator/muster/node/log.py",
            "operator/muster/node/agent",
        ),
        ("python3", "python3-venv"),
        lock="requirements/agent.txt",
    ),
    Image(
        "launcher",
        "muster/launcher",
        "images/launcher/Dockerfile",
        ("images/launcher/install.c", RUN_PYZ),
        ("binutils", "musl-tools"),
    ),
    Image(
        "torch-ddp",
        "muster/torch-ddp",
        "images/trainer/Dockerfile",
        (_WITHOUT_LIBUV, "examples/torch-ddp/train.py", "examples/torch-ddp/selfcheck.py", *_programs(TORCH)),
        ("python3", "python3-torch"),
    ),
    # For nodes without GPUs, as those of the local cluster are; images/burn-in/Dockerfile is the one for others.
    Image(
        "burn-in",
        "muster/burn-in",
        "images/burn-in/cpu.Dockerfile",
        (
            "operator/muster/__init__.py",
            "operator/muster/serve.py",
            "operator/muster/protocol",
            "operator/muster/node/__init__.py",
            "operator/muster/node/log.py",
            "operator/muster/node/checker",
        ),
        ("python3", "python3-torch"),
    ),
    Image(
        FRAMEWORKS,
        "muster/recipes",
        "images/recipes/Dockerfile",
        ("requirements/recipes.txt", _WITHOUT_LIBUV, "images/recipes/accelerate", *_programs(FRAMEWORKS)),
        ("python3", "python3-torch", "python3-venv", "python3-setuptools"),
        lock="requirements/recipes.txt",
        built=("deepspeed",),
        optional=True,
    ),
)


def stage_sources(image: Image, repository: Path, context: Path) -> None:
    """Copy what the image is made of into `context`.

    The build sees this copy and nothing else: an edit during the build cannot end up under the wrong digest, and a
    source that is not declared fails the build.
    """
    for source in (*SCRIPTS, image.dockerfile, *image.sources):
        origin, target = repository / source, context / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
        elif origin.is_file():
            shutil.copyfile(origin, target)
        else:
            raise FileNotFoundError(f"{source} is missing, the image {image.name} is made of it")
    # Modes follow the umask of the user who cloned the repository; images must not.
    for path in context.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def context_digest(image: Image, context: Path, *others: str) -> str:
    """Digest of everything that decides the image: staged files and `others` (the base, the names)."""
    parts: list[bytes | str] = [*others, *image.packages]
    for path in sorted(path for path in context.rglob("*") if path.is_file()):
        parts += [path.relative_to(context).as_posix(), path.read_bytes()]
    return digest_of(parts)
