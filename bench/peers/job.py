"""A plain Indexed Job: no gang; its controller replaces single pods, after a back-off."""

from __future__ import annotations

from bench.bed import NAMESPACE, pod_spec
from bench.peers.system import GANG, System

_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
# The default of 6 would let the Job fail.
_BACK_OFF_LIMIT = 100


class Job(System):
    """The gang as one Indexed Job."""

    name = "job"

    def submit(self) -> None:
        """Create the Job."""
        spec = {
            "completionMode": "Indexed",
            "completions": self.bed.size,
            "parallelism": self.bed.size,
            "backoffLimit": _BACK_OFF_LIMIT,
            "template": {"spec": pod_spec()},
        }
        self.bed.connection.post(
            _JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": GANG}, "spec": spec}
        )

    def remove(self) -> None:
        """Delete the Job; its pods follow."""
        self.bed.connection.delete(f"{_JOBS}/{GANG}", {"propagationPolicy": "Background"})
