"""Define what a job's record says of a node: plain data that recovery makes and health weighs."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class JobFailureReport:
    """One failure of a job that happened on a node and that no other cause explains.

    Such a report weighs little: the tenant controls what ranks do and report.

    Attributes:
        owner: the namespace of the job: failures of two owners count, those of two jobs of one owner do not.
        job: `<namespace>/<name>`; shown only to users who may see all jobs.
        attempt: the last attempt that ended so.
        what: what failed, in Muster's own words, without anything that a container has printed.
        time: when the failure was seen.
        went_on: whether the program has got beyond the failing step since, so that it does not always fail there.
    """

    owner: str
    job: str
    attempt: int
    what: str
    time: datetime
    went_on: bool = False
