"""Deterministic names: creating twice is harmless, and a job re-created under its old name adopts nothing."""

import functools
import hashlib


@functools.lru_cache(maxsize=4096)
def job_digest(job_uid: str) -> str:
    """Five hexadecimal digits that tell jobs of one name apart."""
    return hashlib.sha256(job_uid.encode()).hexdigest()[:5]


def gang_name(job: str, job_uid: str) -> str:
    """Name of a job's Gang, and of the objects that all its workers share."""
    return f"{job}-{job_digest(job_uid)}"


def job_name(gang: str, job_uid: str) -> str:
    """The name of the job whose Gang is called so."""
    return gang.removesuffix(f"-{job_digest(job_uid)}")


def pod_name(job: str, job_uid: str, index: int, incarnation: int) -> str:
    """Name of one worker's pod; each incarnation has its own."""
    return pod_name_in(gang_name(job, job_uid), index, incarnation)


def pod_name_in(gang: str, index: int, incarnation: int) -> str:
    """The same from the Gang's name, for those who name thousands."""
    return f"{gang}-{index}-{incarnation}"


def index_of(pod: str) -> int:
    """The worker's index in the name of its pod."""
    return int(pod.rsplit("-", 2)[1])
