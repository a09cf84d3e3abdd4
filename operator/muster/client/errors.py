"""Errors of the Python library: typed for programs, each with a sentence for people that says what to do.

The sentences are those of `kubectl muster`. An option that they name is the parameter of the same name here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.cli.errors import CliError, one_line
from muster.cli.jobs import JobDeletedError, NoSuchJobError
from muster.cli.session import Session, explained
from muster.cli.waiting import NotInTimeError
from muster.kube import errors as answers

_OPTION = re.compile(r"(?<![\w-])--(kubeconfig|context|namespace|rank|attempt|tail)\b(?: ([A-Z]+\b|\d+))?")
_NO_RIGHT_TO_WRITE = "ask for the cluster's role edit in this namespace, or give another one with namespace="


class MusterError(Exception):
    """What was asked for cannot be done. The text says why, and what to do."""


class NotConnectedError(MusterError):
    """There is no usable kubeconfig, the API server does not answer, or the connection was closed."""


class NotAuthenticatedError(MusterError):
    """The API server does not accept the credentials: a token has expired, or there is none."""


class NotPermittedError(MusterError):
    """The user has no right to do or to read this."""


class JobRefusedError(MusterError):
    """The API server refuses the job: an admission policy or webhook, a quota, or a name that is taken.

    Attributes:
        policy: name of the ValidatingAdmissionPolicy that refused, e.g. `muster-training` where the namespace is not
            enabled or has no nodes; "": none did.
    """

    def __init__(self, message: str, policy: str = "") -> None:
        super().__init__(message)
        self.policy = policy


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field of a manifest.

    Attributes:
        field: its path, e.g. `spec.nodes`.
        message: what is wrong, and what to write.
    """

    field: str
    message: str


class InvalidJobError(MusterError, ValueError):
    """The job is no valid TrainingJob.

    Attributes:
        problems: one for each wrong field.
    """

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        super().__init__("; ".join(f"{problem.field}: {problem.message}" for problem in problems))
        self.problems = tuple(problems)


class JobNotFoundError(MusterError):
    """There is no job of this name."""


class JobGoneError(JobNotFoundError):
    """The job was there, and was deleted or ejected."""


class JobHaltedError(MusterError):
    """The job does not go on by itself: it has failed, or stalls.

    Attributes:
        reason: why, as one CamelCase word of docs/reference/messages.md.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class JobFailedError(JobHaltedError):
    """The job has failed."""


class JobStalledError(JobHaltedError):
    """The job cannot go on until a person changes something."""


class NoLogError(MusterError):
    """No worker has a log that can be read; the text says why of each."""


class WaitTimeoutError(MusterError, TimeoutError):
    """What was waited for has not come in time. The job goes on."""


_TYPES: Mapping[type[answers.ApiError], type[MusterError]] = {
    answers.Unreachable: NotConnectedError,
    answers.ServerError: NotConnectedError,
    answers.Unauthorized: NotAuthenticatedError,
    answers.Forbidden: NotPermittedError,
    answers.Invalid: JobRefusedError,
    answers.WebhookFailed: JobRefusedError,
}


def in_python(text: str) -> str:
    """Write options of the command line as parameters."""
    text = text.replace("--failed", "failed=True").replace("--undo", "undo=True").replace("with -n", "with namespace=")
    return _OPTION.sub(lambda match: f"{match[1]}={match[2] or ''}", text)


def from_command(error: CliError) -> MusterError:
    """Return the error for what a function of the command line has raised."""
    kinds = {NoSuchJobError: JobNotFoundError, JobDeletedError: JobGoneError, NotInTimeError: WaitTimeoutError}
    return kinds.get(type(error), MusterError)(in_python(str(error)))


async def from_answer(session: Session, error: answers.ApiError, *, writes: bool) -> MusterError:
    """Return the error for an answer of the API server.

    Args:
        session: with the namespace.
        error: the answer.
        writes: whether the request was to change something.
    """
    message = one_line(error.message)
    if isinstance(error, answers.NotFound) and error.details.get("kind") == "namespaces":
        return MusterError(f"there is no namespace {session.namespace}: give another one with namespace=")
    if isinstance(error, answers.AlreadyExists):
        return JobRefusedError(f"{message}: choose another name, or continue with that job by job(name)")
    if isinstance(error, answers.Invalid) and error.details.get("causes"):
        causes = [FieldProblem(c.get("field", ""), one_line(c.get("message", ""))) for c in error.details["causes"]]
        return InvalidJobError(list(dict.fromkeys(causes)))  # it names some twice
    if isinstance(error, answers.Forbidden) and error.refusal is not None:
        return JobRefusedError(message)
    if writes and type(error) is answers.Forbidden:
        return NotPermittedError(f"{message}: {_NO_RIGHT_TO_WRITE}")
    if writes and type(error) in (answers.Unreachable, answers.ServerError):
        unknown = f"whether the change was made is not known, as the API server did not answer ({message})"
        return NotConnectedError(f"{unknown}: jobs() shows the jobs that there are")
    text = in_python(str(await explained(session, error)))
    if isinstance(error, answers.Denied):
        return JobRefusedError(text, error.policy)
    return _TYPES.get(type(error), MusterError)(text)
