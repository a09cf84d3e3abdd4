"""Asks what the source cannot say: where the trainer saves, what it calls a checkpoint, how it prints steps.

A directory in the command is proposed, and never set: an option of this name may mean something else.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from muster.convert.worker import words
from muster.lifecycle.place import NO_STORAGE, is_below
from muster.protocol.shell_words import commands, resolved
from muster.protocol.starters import LONGEST_LINE, shell_line

# Options by which programs learn where to save, without dashes, prefixes (`trainer.`) and case; `-` is `_`.
_OPTIONS = frozenset(
    [
        "checkpoint_dir",
        "checkpoint_directory",
        "checkpoints",
        "checkpoints_dir",
        "ckpt_dir",
        "out",
        "out_dir",
        "outdir",
        "output",
        "output_dir",
        "output_directory",
        "save",
        "save_dir",
        "save_directory",
    ]
)
_MOST_NAMED = 3
_LONGEST_PATH = 1024
_FILE = re.compile(r"\.[A-Za-z]{2,11}$")
_PLAIN = re.compile(r"/[^\s$`*?\[\]{}\x00-\x1f\x7f]*")


def questions(container: Mapping[str, Any], volumes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what a person has to check so that the job resumes, and its steps are seen.

    Args:
        container: the container that trains.
        volumes: those of its pod.
    """
    mounts = [mount for mount in container.get("volumeMounts") or () if isinstance(mount.get("mountPath"), str)]
    mounted = ", ".join(str(mount["mountPath"]) for mount in mounts)
    lost = {volume.get("name") for volume in volumes if any(kind in volume for kind in NO_STORAGE)}
    kept = [mount["mountPath"] for mount in mounts if mount.get("name") not in lost and not mount.get("readOnly")]
    named = dict(_named_directories(container, kept))
    found = "; ".join(f"{option} in the command may be it: {path}" for path, option in [*named.items()][:_MOST_NAMED])
    return [
        f"spec.checkpoint.directory: write where the trainer saves{f' (mounted: {mounted})' if mounted else ''}: "
        f"without it restarts get no checkpoint from Muster{f'; {found}' if found else ''}",
        "spec.checkpoint.pattern: files of torch.save count only by it, e.g. step_{step}.pt; one that is overwritten "
        "(latest.pt) is never used; what known frameworks save needs none",
        "spec.progress.stepPattern: finds steps that the program prints in its own way, e.g. '^step ([0-9]+)'; lines "
        "of known frameworks need none; without steps no hang is noticed",
        "MUSTER_RESUME_PATH: the checkpoint that the program has to load where it is set (docs/trainer-contract.md)",
    ]


def _named_directories(container: Mapping[str, Any], mounts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each directory below one of the mounts that the command names, with its option."""
    for command in _commands(container):
        for place, word in enumerate(command):
            option, sign, value = word.partition("=")
            if not sign:
                value = "".join(command[place + 1 : place + 2]) if word.startswith("-") else ""
            name = option.lstrip("-+").rpartition(".")[2].replace("-", "_").lower()
            path = value.rstrip("/")
            if name in _OPTIONS and _is_directory(path) and any(is_below(path, mount) for mount in mounts):
                yield path, option


def _commands(container: Mapping[str, Any]) -> Iterable[Sequence[str]]:
    """Return the commands that the container runs: its own, or those of its shell's line."""
    said = words(container)
    line = shell_line(said)
    if line is None:
        return [said]
    return resolved(commands(line)) if len(line) <= LONGEST_LINE else ()


def _is_directory(path: str) -> bool:
    is_plain = len(path) <= _LONGEST_PATH and _PLAIN.fullmatch(path) is not None
    return is_plain and posixpath.normpath(path) == path and not _FILE.search(path)
