"""What a job's record says of a node: plain data that recovery makes and health weighs."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobWord:
    """One failure of a job that happened on a node and is explained by nothing else.

    A word is weak: what ranks do and say is their tenant's doing.

    Attributes:
        owner: whose job, its namespace: two of them count, two jobs of one do not.
        job: `<namespace>/<name>`; for those only who may see all jobs.
        attempt: the last one that ended so.
        what: what failed, in words of Muster's own: nothing that a container has printed.
        time: when that was seen.
        went_on: the program has got beyond the failing step since, so that it is not what always fails there.
    """

    owner: str
    job: str
    attempt: int
    what: str
    time: datetime
    went_on: bool = False
