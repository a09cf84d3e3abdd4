"""Say that a cluster has Muster without TrainingJobs, in place of empty lists and of advice to install it.

Tests: tests/unit/cli/test_without_jobs.py.
"""

from typing import TYPE_CHECKING

from muster.api.installation import InstallationProfile
from muster.kube.definitions import served_kinds

if TYPE_CHECKING:
    from muster.kube.client import Client

WITHOUT_JOBS = (
    "Muster is installed without TrainingJobs (profile observe, health or burn-in; kubectl muster doctor says which): "
    "kubectl muster nodes shows the fleet. To run jobs, an administrator installs profile jobs: "
    f"{InstallationProfile.JOBS.definitions_command}, then {InstallationProfile.JOBS.overlay_command}; "
    "docs/profiles.md says more"
)


async def is_without_jobs(client: "Client") -> bool:
    """Whether the cluster has Muster, and no definition of TrainingJobs.

    Raises:
        ApiError: the API server did not answer as it should.
    """
    kinds = await served_kinds(client)
    return "nodehealths" in kinds and "trainingjobs" not in kinds
