"""The connection of a Python program to Muster: submit jobs, and find those that there are."""

import dataclasses
import json
from collections.abc import Mapping
from os import PathLike
from types import TracebackType
from typing import Any, Self

from muster.answers.overview import TopRow
from muster.cli import top
from muster.cli.jobs import job_of
from muster.cli.session import Options, Session
from muster.client.connection import ClusterConnection
from muster.client.errors import FieldProblem, InvalidJobError
from muster.client.job import Job
from muster.client.manifest import checked, read_manifest
from muster.kube import paths


class Muster:
    """A connection to a cluster, with the user's own credentials. It finds them as kubectl does.

    Args:
        namespace: of the jobs; None: the context's, in a pod the pod's.
        context: of the kubeconfig; None: the current one.
        kubeconfig: a file; None: KUBECONFIG, else the pod's own credentials, else ~/.kube/config.

    Raises:
        NotConnectedError: there is no usable kubeconfig, or no such context.
    """

    def __init__(
        self, namespace: str | None = None, *, context: str | None = None, kubeconfig: str | None = None
    ) -> None:
        self._connection = ClusterConnection(Options(kubeconfig, context, namespace))
        self._session = self._connection.session
        self._is_given = namespace is not None

    @property
    def namespace(self) -> str:
        """The namespace of the jobs."""
        return self._session.namespace

    def submit(self, job: Mapping[str, Any] | str | PathLike[str], *, name: str | None = None) -> Job:
        """Create a job.

        Args:
            job: a manifest: a dict, e.g. of `training_job`, or the path of a YAML file. Its own namespace counts.
            name: of the job, in place of that of the manifest.

        Raises:
            InvalidJobError: a field is wrong; `problems` names each.
            JobRefusedError: the API server refuses the job, e.g. as its namespace is not enabled, or the name is taken.
            MusterError: it could not be created.
        """
        manifest = checked(job if isinstance(job, Mapping) else read_manifest(job), name)
        session = self._session_of(manifest["metadata"].get("namespace"))
        path = paths.muster("trainingjobs", namespace=session.namespace)
        query = {"fieldValidation": "Strict"}
        answer = self._connection.ask(session, lambda it: it.client.post(path, manifest, query), writes=True)
        metadata = json.loads(answer)["metadata"]
        return Job(self._connection, session, metadata["name"], metadata["uid"])

    def job(self, name: str) -> Job:
        """Return a job that there is.

        Raises:
            JobNotFoundError: there is none of this name; says which may be meant.
            MusterError: it cannot be read.
        """
        metadata = self._connection.ask(self._session, lambda session: job_of(session, name)).metadata
        return Job(self._connection, self._session, metadata.name, metadata.uid)

    def jobs(self, *, ended: bool = False) -> list[TopRow]:
        """List the jobs of the namespace as `kubectl muster top` does: first those that need a user.

        Args:
            ended: also those that have ended.

        Raises:
            MusterError: they cannot be read.
        """
        return self._connection.ask(self._session, lambda it: top.find(it, ended=ended, one_namespace=True)).jobs

    def close(self) -> None:
        """Close the connection. Jobs go on."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _session_of(self, namespace: str | None) -> Session:
        if namespace is None or namespace == self._session.namespace:
            return self._session
        if self._is_given:
            problem = f"{namespace} is not the {self.namespace} of this connection: leave one of them out"
            raise InvalidJobError([FieldProblem("metadata.namespace", problem)])
        return dataclasses.replace(self._session, namespace=namespace)
