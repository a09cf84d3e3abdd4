"""Turn the failure of a command into one line that says what to do, in place of a traceback.

Tests: tests/unit/cli/test_commands.py.
"""

from muster.answers.roles import EDIT_ROLE, FLEET_ROLE, VIEW_ROLE
from muster.answers.without_jobs import WITHOUT_JOBS
from muster.api.installation import POLICY_COMMAND, InstallationProfile
from muster.kube import errors

_INSTALL = (
    f"install Muster, beginning with {InstallationProfile.JOBS.definitions_command}, or choose another cluster with "
    "--context"
)
_KINDS_OF_JOBS = frozenset({"trainingjobs", "gangs", "endedjobs"})
# How an API server refuses a request where the parameter of a ValidatingAdmissionPolicy does not exist. Source:
# kubernetes/apiserver, pkg/admission/plugin/policy/generic/policy_matcher.go.
_NO_PARAMETER = "no params found for policy binding"
_NO_POLICY = (
    ": there is no FleetPolicy default, so no job starts; an administrator creates it from a copy that was kept; for a "
    f"new installation: {POLICY_COMMAND}"
)


class CliError(Exception):
    """The command cannot do what was asked; the message is one line with the remedy."""


def error_text(error: errors.ApiError, context: str) -> CliError:
    """Turn an answer of the API server that ends a command into an error for its user. The kubeconfig's context is ""
    in a pod.
    """
    where = f" of context {context}" if context else ""
    if isinstance(error, errors.Unreachable):
        return CliError(
            f"no answer from the API server{where} ({one_line(error.cause or error.message)}): is the cluster up and "
            "reachable from here? kubectl config get-contexts lists others for --context"
        )
    if isinstance(error, errors.Unauthorized):
        return CliError(f"the API server{where} does not accept your credentials: log in again, or check --kubeconfig")
    if isinstance(error, errors.Denied):
        return CliError(f"{one_line(error.message)}{_NO_POLICY if _NO_PARAMETER in error.message else ''}")
    if isinstance(error, errors.Forbidden):
        return CliError(f"{one_line(error.message)}: {needed_role_text(error)}")
    if isinstance(error, errors.NotFound):
        return CliError(f"the cluster{where} does not know Muster's objects (muster.dev/v1alpha1): {_INSTALL}")
    return CliError(f"the API server{where} refused: {one_line(str(error))}")


def may_lack_jobs(error: errors.ApiError) -> bool:
    """Whether the error may come of a cluster without the definition of TrainingJobs. There is no right to a kind that
    is not there, either."""
    if isinstance(error, errors.Forbidden):
        return error.details.get("group") == "muster.dev" and error.details.get("kind") in _KINDS_OF_JOBS
    return isinstance(error, errors.NotFound)


def without_jobs(context: str) -> CliError:
    """Return the error of a command that needs TrainingJobs, for a cluster with Muster and without them."""
    return CliError(f"in the cluster{f' of context {context}' if context else ''} {WITHOUT_JOBS}")


def one_line(text: str) -> str:
    """Return the text without line breaks."""
    return " ".join(text.split())


def needed_role_text(error: errors.Forbidden) -> str:
    """Name the role that has the right. Only the fleet's role has the right to lists of the whole cluster."""
    details = error.details
    own = details.get("group") == "muster.dev" and details.get("kind") != "fleetpolicies"
    if own and not error.is_cluster_wide:
        role, has_it = (EDIT_ROLE, "edit") if error.is_of_write else (VIEW_ROLE, "view, edit")
        return (
            f"ask for ClusterRole {role} in this namespace (the cluster's roles {has_it} and admin have it), or give "
            "another one with -n"
        )
    return f"ask for ClusterRole {FLEET_ROLE} (a ClusterRoleBinding), which has every right that this command needs"
