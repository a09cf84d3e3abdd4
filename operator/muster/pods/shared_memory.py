"""Whether a trainer's /dev/shm is its own, so that what its ranks have left there may be removed. Pure.

A file there does not say which program made it. It names a process at best by a number, which is another process
elsewhere. What is known of a pod before it starts shows whether others share the memory: the node, or containers of the
same pod. The latter share one /dev/shm unless they mount something there. Where the pod has the node's PID namespace,
the number in a name may be that of any process of the node. Source: Kubernetes API, PodSpec.hostIPC and hostPID;
containerd, CRI sandboxes.
"""

import posixpath
from collections.abc import Mapping
from typing import Any

from muster.pods.objects import objects

PLACE = "/dev/shm"  # noqa: S108 - where libraries put it, not a temporary file of ours


def is_own(spec: Mapping[str, Any], worker: Mapping[str, Any]) -> bool:
    """Whether only the container that trains can see its /dev/shm.

    Args:
        spec: the pod's, as it is written.
        worker: the container of the pod that trains.
    """
    if spec.get("hostPID"):
        return False
    beside = [
        *(container for container in objects(spec, "containers") if container.get("name") != worker.get("name")),
        *(container for container in objects(spec, "initContainers") if container.get("restartPolicy") == "Always"),
    ]
    mounted = {
        posixpath.normpath(str(mount.get("mountPath"))): mount.get("name") for mount in objects(worker, "volumeMounts")
    }
    if PLACE not in mounted:
        return not (spec.get("hostIPC") or beside or posixpath.dirname(PLACE) in mounted)
    name = mounted[PLACE]
    empty = any(volume.get("name") == name and "emptyDir" in volume for volume in objects(spec, "volumes"))
    return empty and not any(
        mount.get("name") == name for container in beside for mount in objects(container, "volumeMounts")
    )
