"""Where a job saves, so that two jobs of one place are reported: neither could tell its own checkpoints. Pure.

Two jobs that save to one directory resume from each other's checkpoints, and may overwrite them. Whether they do is
seen by the URL with the store that the container names, or by the volume mounted where spec.checkpoint.directory lies,
as far as it names its storage. Claims belong to a namespace. What a driver or a path of the node leads to is not known.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from posixpath import normpath
from typing import Any

from muster.api.trainingjob import TrainingJob
from muster.pods.objects import objects
from muster.pods.warned import Warned
from muster.pods.worker_pod import worker_container
from muster.protocol.checkpoint_names import absolute, is_url
from muster.world.job import JobWorld
from muster.world.names import job_name, place_digest, shortened
from muster.world.views import JOB_UID_LABEL, PodView

DIRECTORY_SHARED = "DirectoryShared"
DIRECTORY_IN_USE = "DirectoryInUse"
ON_NO_VOLUME = "DirectoryOnNoVolume"
ON_POD_VOLUME = "DirectoryOnPodVolume"
# Kinds of volumes that end with their pod, or that a program cannot write to.
_OF_POD = ("emptyDir", "ephemeral")
_READ_ONLY = ("configMap", "secret", "downwardAPI", "projected", "image")
NO_STORAGE = (*_OF_POD, *_READ_ONLY)
MAX_TOLD = 3
SECOND_NS = 1_000_000_000
# By which of the container's variables programs know the store of a URL, by its scheme: the first that is set counts.
_OF_S3 = ("FSSPEC_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_OF_AZURE = ("AZURE_STORAGE_ACCOUNT_NAME",)
_STORES = {"s3": _OF_S3, "s3a": _OF_S3, "az": _OF_AZURE, "abfs": _OF_AZURE, "abfss": _OF_AZURE}
ELSEWHERE = "a job of another namespace"
ENDING = "{} (deleted; its pods have not ended)"
EJECTED = "{job} (ejected; {pods} may train on; kubectl -n {namespace} delete pods -l {label}={uid} ends them)"


def place_of(job: TrainingJob) -> str:
    """Return a digest that is equal for jobs that save to one directory; "": the job saves to none, or that is not
    known."""
    directory = job.spec.checkpoint.directory
    if not directory:
        return ""
    container = worker_container(job) or {}
    if is_url(directory):
        return place_digest(f"{absolute(directory)} {_store_of(container, directory)}")
    path = normpath(directory)
    mount = _mount_of(container, path)
    storage = _storage(job, _volume_of(job, mount)) if mount is not None else ""
    return place_digest(_within(storage, mount, path)) if mount is not None and storage else ""


def saves_to(job: TrainingJob) -> str:
    """Return the digest by which the pods of a job say where it saves, once they belong to no job; "": nowhere.

    Where its place is not known, it is known at least to be that of a job of the same name.
    """
    directory = job.spec.checkpoint.directory
    return place_of(job) or place_digest(f"job {job.metadata.name}:{directory}" if directory else "")


def without_job_text(pods: Sequence[PodView]) -> str:
    """Return how the pods of one gang whose job is gone are named to a job that saves to the same directory.

    Pods that the job still owns go with it. The others were ejected, and some have another owner since.
    """
    first = pods[0]
    if first.owner_uid == first.job_uid:
        return ENDING.format(job_name(first.name.rsplit("-", 2)[0], first.job_uid))
    return EJECTED.format(
        job=job_name(first.name.rsplit("-", 2)[0], first.job_uid),
        pods=shortened(sorted(pod.name for pod in pods), MAX_TOLD),
        namespace=first.namespace,
        label=JOB_UID_LABEL,
        uid=first.job_uid,
    )


def location(job: TrainingJob, path: str) -> str:
    """Return where a path of the trainer lies, as the storage that its volume names, else the volume itself, and the
    path in that; "": on no volume, or that is not known.

    Args:
        job: the job.
        path: absolute, without needless parts.
    """
    mount = _mount_of(worker_container(job) or {}, path)
    if mount is None:
        return ""
    return _within(_storage(job, _volume_of(job, mount)) or f"volume {mount.get('name')}", mount, path)


def _within(storage: str, mount: Mapping[str, Any], path: str) -> str:
    """Return the storage, and where below it a path lies that is on this mount of it; "": that is not known."""
    if mount.get("subPathExpr"):
        return ""
    inner = path[len(normpath(str(mount["mountPath"])).rstrip("/")) :]
    return f"{storage}:{normpath('/' + str(mount.get('subPath') or '') + '/' + inner)}"


def _store_of(container: Mapping[str, Any], url: str) -> str:
    """Return the store that a container's own variables name for a URL; "": the usual one, or it is not known.

    What comes from Secrets, ConfigMaps and the image is not known.
    """
    env = {str(variable.get("name")): str(variable.get("value") or "") for variable in objects(container, "env")}
    stores = (env.get(name, "").rstrip("/") for name in _STORES.get(url.partition("://")[0], ()))
    return next(filter(None, stores), "")


def volume_warning(world: JobWorld) -> Warned | None:
    """Return the warning that checkpoints are lost with the first pod, by what the trainer mounts; None: none is known.

    What a path of the node or a driver leads to is not known. Admission may add volumes that no template shows, and an
    image may have a link to a mount: once workers see one checkpoint, the directory is shared all the same.
    """
    job = world.job
    directory, container = job.spec.checkpoint.directory, worker_container(job)
    if not directory or is_url(directory) or container is None:
        return None
    path = normpath(directory)
    mount = _mount_of(container, path)
    if mount is None:
        return None if _is_seen_shared(world) else _no_volume_warning(container, path)
    volume = _volume_of(job, mount)
    kind = next((kind for kind in NO_STORAGE if kind in volume), "")
    if not kind:
        return None
    consequence_text = "which ends with its pod: what the trainer saves is lost then, and no other worker sees it"
    if kind in _READ_ONLY:
        consequence_text = "to which no program can write"
    return Warned(
        ON_POD_VOLUME,
        f"spec.checkpoint.directory {path} lies on volume {mount.get('name')}, of kind {kind}, {consequence_text}. "
        "Mount a volume there that all workers share (a claim with ReadWriteMany, NFS)",
    )


def _is_seen_shared(world: JobWorld) -> bool:
    """Whether two workers see one checkpoint of this job, or did before.

    It is one and the same where it was written at the same nanosecond. What an image contains is older than the job,
    and mostly of a whole second. A leader that has heard no launcher yet goes by the status.
    """
    created = world.job.metadata.creation_timestamp
    seen = Counter(
        (c.step, c.path, c.written_ns)
        for view in world.views.values()
        for c in view.checkpoints
        if c.written_ns % SECOND_NS and (created is None or c.written_ns > created.timestamp() * SECOND_NS)
    )
    if any(count > 1 for count in seen.values()):
        return True
    status = world.job.status
    return status.checkpoint is not None and all(warning.reason != ON_NO_VOLUME for warning in status.warnings)


def _no_volume_warning(container: Mapping[str, Any], path: str) -> Warned:
    mount_paths = sorted({normpath(str(mount["mountPath"])) for mount in _mounts(container)})
    mounted, or_else = "mounts none", ""
    if mount_paths:
        mounted = f"mounts {', '.join(mount_paths[:MAX_TOLD])}{' and others' * (len(mount_paths) > MAX_TOLD)}"
        or_else = f", or name {f'a directory below {mount_paths[0]}' if len(mount_paths) == 1 else 'one below a mount'}"
    return Warned(
        ON_NO_VOLUME,
        f"spec.checkpoint.directory {path} lies on no volume: the trainer (container {container.get('name')}) "
        f"{mounted}. What it saves there is lost with its pod, and no other worker sees it. Mount a volume there "
        f"that all workers share (a claim with ReadWriteMany, NFS){or_else}",
    )


def shared_directory_warning(world: JobWorld) -> Warned | None:
    """Return the warning that other jobs save to the same directory; None: there are none.

    The job waits for those that come before it: they run, are older and wait for nodes, or are deleted and still end.
    """
    names, first = world.sharing, () if world.worker_views else world.sharing_first
    if not names:
        return None
    reason = DIRECTORY_IN_USE if first else DIRECTORY_SHARED
    return Warned(
        reason,
        f"spec.checkpoint.directory is that of {shortened(first or names, MAX_TOLD)}, too: each may go on from the "
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


def _mounts(container: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [mount for mount in objects(container, "volumeMounts") if mount.get("mountPath")]


def _mount_of(container: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Return the mount of a container that a path lies on; None: it lies on none."""
    above = [mount for mount in _mounts(container) if is_below(path, str(mount["mountPath"]))]
    return max(above, key=lambda mount: len(normpath(str(mount["mountPath"]))), default=None)


def _volume_of(job: TrainingJob, mount: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the volume of a mount; empty where the template has none of that name."""
    return next((volume for volume in objects(job.spec.pod, "volumes") if volume.get("name") == mount.get("name")), {})


def is_below(path: str, mount: str) -> bool:
    """Whether a path without needless parts is that of a mount, or lies below it."""
    mount = normpath(mount).rstrip("/")
    return path == mount or path.startswith(mount + "/")
