"""Asks what the source cannot say: where the trainer saves, what it calls a checkpoint, how it prints steps.

A directory in the command is proposed, and never set: an option of this name may mean something else.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from muster.checkpoints.location import NO_STORAGE, is_below
from muster.checkpoints.save_options import commands_in, is_directory, save_options
from muster.convert.worker import words

_MOST_NAMED = 3


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
    suggestions = "; ".join(
        f"{option} in the command may be it: {path}" for path, option in [*named.items()][:_MOST_NAMED]
    )
    return [
        f"spec.checkpoint.directory: write where the trainer saves{f' (mounted: {mounted})' if mounted else ''}: "
        f"without it restarts get no checkpoint from Muster{f'; {suggestions}' if suggestions else ''}",
        "spec.checkpoint.pattern: files of torch.save count only by it, e.g. step_{step}.pt; one that is overwritten "
        "(latest.pt) is never used; what known frameworks save needs none",
        "spec.progress.stepPattern: finds steps that the program prints in its own way, e.g. '^step ([0-9]+)'; lines "
        "of known frameworks need none; without steps no hang is noticed",
        "MUSTER_RESUME_PATH: the checkpoint that the program has to load where it is set (docs/trainer-contract.md)",
    ]


def _named_directories(container: Mapping[str, Any], mounts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each directory below one of the mounts that the command names, with its option."""
    for command in commands_in(words(container)):
        for option, path, _ in save_options(command):
            if is_directory(path) and any(is_below(path, mount) for mount in mounts):
                yield path, option
