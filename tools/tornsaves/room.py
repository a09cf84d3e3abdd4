"""The image of the recipes, unpacked: what is run in it sees its frameworks, and one directory of this machine."""

from __future__ import annotations

import json
import shlex
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from localcluster.cache import cache_root, digest_of, make_once

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "build" / "images" / "optional.json"
PROGRAMS = Path(__file__).parent / "programs"
WORK = "/tornsaves"
_ENTER = (
    'mount --make-rprivate / && mount --bind "$1" "$2$3" && mount --rbind /dev "$2/dev" && mount -t proc proc '
    '"$2/proc" && mount -t tmpfs tmpfs "$2/tmp" && root=$2 && shift 3 && exec "$@" chroot "$root" '
)


def unpacked() -> Path:
    """The image's files; made once for each image."""
    image = json.loads(INDEX.read_text())["recipes"]

    def make(target: Path) -> None:
        with tarfile.open(image["archive"]) as archive:
            (found,) = json.load(_member(archive, "manifest.json"))
            for layer in found["Layers"]:
                with tempfile.NamedTemporaryFile(dir=target.parent) as copy:
                    copy.write(_member(archive, layer).read())
                    copy.flush()
                    subprocess.run(["tar", "-x", "-f", copy.name, "-C", str(target)], check=True)
        (target / WORK.lstrip("/")).mkdir()

    return make_once(cache_root() / "rooms" / digest_of([image["image"]]), make)


def _member(archive: tarfile.TarFile, name: str) -> tarfile.ExFileObject:
    found = archive.extractfile(name)
    if not isinstance(found, tarfile.ExFileObject):
        raise FileNotFoundError(name)
    return found


def command(
    room: Path, work: Path, program: Sequence[str], around: Sequence[str] = (), before: Sequence[str] = ()
) -> list[str]:
    """What runs one of the programs in it, where `work` is seen as WORK.

    Args:
        around: words before the one that enters the room: strace.
        before: words before the program's own: env.
    """
    variables = ["env", "-i", *(f"{name}={value}" for name, value in ENVIRONMENT.items())]
    inside = [*variables, *before, "python3", f"{WORK}/programs/{program[0]}", *program[1:]]
    return [
        "unshare",
        "--mount",
        "sh",
        "-c",
        _ENTER + shlex.join(inside),
        "sh",
        str(work),
        str(room),
        WORK,
        *(around or ["env"]),
    ]


ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/tmp",
    "PYTHONDONTWRITEBYTECODE": "1",
    "USE_LIBUV": "0",
    "OMP_NUM_THREADS": "1",
    "DS_ACCELERATOR": "cpu",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
}
