"""List the jobs for commands that show many of them: of all namespaces, or of as many as the user may read.

Tests: tests/unit/cli/test_top.py, tests/unit/cli/test_queue.py.
"""

from muster.answers.lists import listed
from muster.answers.roles import FLEET_ROLE
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.session import Session
from muster.kube import decode, paths
from muster.kube.decode import Undecodable
from muster.kube.errors import Forbidden


async def list_jobs(
    session: Session, *, one_namespace: bool, consequence: str = ""
) -> tuple[list[TrainingJob | Undecodable], str, list[str]]:
    """List the jobs once: of all namespaces, unless one is given or no more may be read.

    Args:
        session: with the namespace.
        one_namespace: whether that one alone is asked for.
        consequence: of seeing one namespace alone, for the note about it.

    Returns:
        The jobs, their namespace ("": all), and notes for people about what is left out.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    read = decode.custom(TrainingJob)
    notes: list[str] = []
    namespace = session.namespace if one_namespace else ""
    try:
        jobs, unreadable = await listed(session.client, paths.muster("trainingjobs", namespace=namespace), read)
    except Forbidden:
        if one_namespace:
            raise
        namespace = session.namespace
        notes.append(
            f"only namespace {namespace}: {consequence}to see all, ask for ClusterRole {FLEET_ROLE} (a "
            "ClusterRoleBinding)"
        )
        jobs, unreadable = await listed(session.client, paths.muster("trainingjobs", namespace=namespace), read)
    if unreadable:
        notes.append(f"{show.count(unreadable, 'job')} cannot be read by this version")
    return jobs, namespace, notes
