"""The Python library for those who train: submit jobs, wait for them, read their logs and accounts, have them save and
move, cancel them.

docs/python.md explains it. It asks the API server with the user's own credentials, and what it finds it finds by the
functions of `kubectl muster`.
"""

from muster.cli.move import MovedJob
from muster.cli.progress import JobProgress
from muster.cli.save import RequestedSave
from muster.client.errors import (
    FieldProblem,
    InvalidJobError,
    JobFailedError,
    JobGoneError,
    JobHaltedError,
    JobNotFoundError,
    JobRefusedError,
    JobStalledError,
    MusterError,
    NoLogError,
    NotAuthenticatedError,
    NotConnectedError,
    NotPermittedError,
    WaitTimeoutError,
)
from muster.client.job import Job
from muster.client.manifest import training_job
from muster.client.muster import Muster

__all__ = [
    "FieldProblem",
    "InvalidJobError",
    "Job",
    "JobFailedError",
    "JobGoneError",
    "JobHaltedError",
    "JobNotFoundError",
    "JobProgress",
    "JobRefusedError",
    "JobStalledError",
    "MovedJob",
    "Muster",
    "MusterError",
    "NoLogError",
    "NotAuthenticatedError",
    "NotConnectedError",
    "NotPermittedError",
    "RequestedSave",
    "WaitTimeoutError",
    "training_job",
]
