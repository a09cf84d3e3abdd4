"""Whether a Gang is the record of a job.

Admission makes Gangs the operator's, where it is installed. Without it whoever may write Gangs in a namespace could take
any node with one that was never committed, so a decision looks at each Gang's owner and size, too.
"""

from muster.api.gang import Gang
from muster.world.names import gang_name

_DELETE = "delete this Gang, and Muster starts the job anew"


def record_key(namespace: str, job: str, uid: str) -> tuple[str, str]:
    """Namespace and name of the one Gang that can be a job's record."""
    return namespace, gang_name(job, uid)


def record_flaw(gang: Gang, job: str, uid: str, nodes: int) -> str:
    """Why the Gang at a job's `record_key` is not its record; "" if it is.

    Args:
        gang: it has the key already.
        job: name of the TrainingJob.
        uid: of the TrainingJob.
        nodes: how many members the job may have.
    """
    controller = gang.metadata.controller
    owned = controller is not None and (controller.kind, controller.name, controller.uid) == ("TrainingJob", job, uid)
    if not owned or gang.spec.job_uid != uid:
        return f"metadata.ownerReferences: its controller is not the TrainingJob {job} with uid {uid}: {_DELETE}"
    count = len(gang.spec.members)
    if count > nodes:
        return f"spec.members: {count} members, and spec.nodes of the TrainingJob is {nodes}: {_DELETE}"
    return ""
