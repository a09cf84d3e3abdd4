"""Where a job saves, so that two jobs of one place are reported: neither could tell its own checkpoints. Pure.

Two jobs that save to one directory resume from each other's checkpoints, and may overwrite them. Whether they do is
seen by the URL, or by the volume mounted where spec.checkpoint.directory lies, as far as it names its storage. Claims
belong to a namespace. What a driver or a path of the node leads to is not known.
"""

from collections.abc import Mapping
from posixpath import normpath
from typing import Any

from muster.api.trainingjob import TrainingJob
from muster.lifecycle.objects import objects
from muster.lifecycle.warned import Warned
from muster.lifecycle.worker_pod import worker_container
from muster.protocol.checkpoint_names import absolute, is_url
from muster.world.job import JobWorld

DIRECTORY_SHARED = "DirectoryShared"
DIRECTORY_IN_USE = "DirectoryInUse"
MAX_TOLD = 3
ELSEWHERE = "a job of another namespace"


def place_of(job: TrainingJob) -> str:
    """Return a text that is equal for jobs that save to one directory; "": the job saves to none, or that is not
    known."""
    directory = job.spec.checkpoint.directory
    if not directory:
        return ""
    if is_url(directory):
        return absolute(directory)
    path = normpath(directory)
    mounts = objects(worker_container(job) or {}, "volumeMounts")
    above = [each for each in mounts if _is_below(path, str(each.get("mountPath", "")))]
    mount = max(above, key=lambda each: len(normpath(str(each["mountPath"]))), default=None)
    if mount is None or mount.get("subPathExpr"):
        return ""
    volumes = objects(job.spec.pod, "volumes")
    storage = next((_storage(job, each) for each in volumes if each.get("name") == mount.get("name")), "")
    inner = path[len(normpath(str(mount["mountPath"])).rstrip("/")) :]
    return f"{storage}:{normpath('/' + str(mount.get('subPath') or '') + '/' + inner)}" if storage else ""


def shared_directory_warning(world: JobWorld) -> Warned | None:
    """Return the warning that other jobs save to the same directory; None: there are none.

    The job waits for those that come before it: they run, or are older and wait for nodes.
    """
    names, first = world.sharing, () if world.worker_views else world.sharing_first
    if not names:
        return None
    reason = DIRECTORY_IN_USE if first else DIRECTORY_SHARED
    shown = first or names
    more = f" and {len(shown) - MAX_TOLD} more" if len(shown) > MAX_TOLD else ""
    return Warned(
        reason,
        f"spec.checkpoint.directory is that of {', '.join(shown[:MAX_TOLD])}{more}, too: each may go on from the "
        "checkpoints of the other, or write over them. Give each job a directory of its own",
        holds=bool(first),
    )


def _storage(job: TrainingJob, volume: Mapping[str, Any]) -> str:
    claim, nfs = volume.get("persistentVolumeClaim"), volume.get("nfs")
    if isinstance(claim, dict) and claim.get("claimName"):
        return f"claim {job.metadata.namespace}/{claim['claimName']}"
    if isinstance(nfs, dict) and nfs.get("server"):
        return f"nfs {nfs['server']}:{nfs.get('path')}"
    return ""


def _is_below(path: str, mount: str) -> bool:
    mount = normpath(mount).rstrip("/") if mount else "."
    return path == mount or path.startswith(mount + "/")
