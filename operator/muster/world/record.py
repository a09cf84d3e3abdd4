"""Check whether a Gang is the record of a job.

Where admission is installed, only the operator can write Gangs. Without it any user with the right to write Gangs in a
namespace could take any node with one that was never committed. So a decision checks each Gang's owner and size, too.

Tests: tests/unit/controller/test_cluster.py.
"""

from typing import NamedTuple

from muster.api.gang import Gang
from muster.world.names import gang_name

_DELETE = "delete this Gang, and Muster starts the job again"


class JobIdentity(NamedTuple):
    """The fields that a TrainingJob must share with its record; known of a job that cannot be read, too.

    Attributes:
        nodes: how many members the record may have.
    """

    namespace: str
    name: str
    uid: str
    nodes: int


def record_key(job: JobIdentity) -> tuple[str, str]:
    """Return namespace and name of the one Gang that can be a job's record."""
    return job.namespace, gang_name(job.name, job.uid)


def is_record(gang: Gang, job: JobIdentity) -> bool:
    """Whether a Gang is the record of this job."""
    key = (gang.metadata.namespace, gang.metadata.name)
    return key == record_key(job) and not record_flaw(gang, job)


def record_flaw(gang: Gang, job: JobIdentity) -> str:
    """Say why the Gang at a job's `record_key` is not its record; "" if it is."""
    controller = gang.metadata.controller
    expected = ("TrainingJob", job.name, job.uid)
    owned = controller is not None and (controller.kind, controller.name, controller.uid) == expected
    if not owned or gang.spec.job_uid != job.uid:
        return (
            f"metadata.ownerReferences: its controller is not the TrainingJob {job.name} with uid {job.uid}: {_DELETE}"
        )
    count = len(gang.spec.members)
    if count > job.nodes:
        return f"spec.members: {count} members, and spec.nodes of the TrainingJob is {job.nodes}: {_DELETE}"
    return ""
