"""One thing that people should know of a job, as the rooms that find it hand it on. Pure.

Tests: tests/unit/status/test_warnings.py.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Warned:
    """One thing that people should know of a job.

    Attributes:
        reason: stable and in CamelCase; "": a note, which stands in the condition TemplateAccepted alone.
        message: for people.
        holds: whether a job that has never had nodes waits until a person has accepted the reason.
    """

    reason: str
    message: str
    holds: bool = False
