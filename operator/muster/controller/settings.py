"""The settings of one installation, from environment variables with defaults that fit the manifests.

Tests: tests/unit/manifests/test_manifests.py.
"""

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from muster.api.installation import InstallationProfile
from muster.pods.worker_pod import WorkerSettings
from muster.serve import node_addresses

COORDINATOR_SERVICE = "muster-coordinator"
OWN_ISSUER, EXTERNAL_ISSUER = "muster", "external"
# Views of objects come and go by the thousand and hold no cycles: the collector would look at all of them, for nothing.
# While it looks nothing else runs. So it looks at 30,000 new objects at once at most, and at the old ones seldom.
COLLECT_AFTER = (5_000, 5, 4_000)
# A thread that renders metrics gives the event loop the interpreter this soon. Python's default is 25 times as long.
SWITCH_SECONDS = 0.0002


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one operator process.

    Attributes:
        namespace: where Muster runs (MUSTER_NAMESPACE).
        profile: what this installation does (MUSTER_PROFILE).
        pod_name: this replica's pod (POD_NAME); empty outside a cluster.
        pod_ip: its address (POD_IP), at which launchers find this replica when it leads; empty outside a cluster: then
            the other replicas cannot tell them.
        node_addresses: from where the kubelet's probes come (HOST_IPS, and the pod's default gateway).
        launcher_image: image that brings the launcher into workers (MUSTER_LAUNCHER_IMAGE); needed with jobs.
        coordinator_url: where launchers find a replica, which names the leader (MUSTER_COORDINATOR_URL).
        coordinator_port: port to serve launchers on (MUSTER_COORDINATOR_PORT).
        probe_port: port of /healthz and /readyz, over plain HTTP (MUSTER_PROBE_PORT).
        metrics_port: port of /metrics, over HTTPS (MUSTER_METRICS_PORT).
        worlds_port: loopback port at which administrators read what was decided on (MUSTER_WORLDS_PORT).
        certificate_issuer: who issues the coordinator's serving certificate (MUSTER_CERTIFICATE_ISSUER): the operator,
            or another system such as cert-manager, which keeps the Secret; the operator then makes no authority.
        checker_namespace: where the checkers run (MUSTER_CHECKER_NAMESPACE, which components/checkers sets); a pod
            there is a checker by its service account. Empty: no pod is, or the creator of such a namespace would speak
            for nodes. A profile without tests leaves it empty.
        agent_namespace: where the nodes' agents run (MUSTER_AGENT_NAMESPACE, which the manifests set). Empty: no pod is
            an agent, or the creator of such a namespace would say which agents are alive.
        agent_silence_seconds: how long an agent may be silent before its node takes no new jobs
            (MUSTER_AGENT_SILENCE_SECONDS).
        log_level: DEBUG, INFO, WARNING or ERROR (MUSTER_LOG_LEVEL).
    """

    namespace: str = "muster-system"
    profile: InstallationProfile = InstallationProfile.JOBS
    pod_name: str = ""
    pod_ip: str = ""
    node_addresses: frozenset[str] = frozenset()
    identity: str = ""
    launcher_image: str = ""
    coordinator_url: str = ""
    coordinator_name: str = ""
    coordinator_port: int = 8443
    probe_port: int = 8080
    metrics_port: int = 8445
    worlds_port: int = 8081
    certificate_issuer: str = OWN_ISSUER
    checker_namespace: str = ""
    agent_namespace: str = ""
    agent_silence_seconds: int = 600
    log_level: str = "INFO"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read the settings from the environment.

        Raises:
            SystemExit: a setting without a default is missing, or one cannot be parsed; the message says which.
        """
        namespace = environment.get("MUSTER_NAMESPACE", "muster-system")
        profile = InstallationProfile(_choice(environment, "MUSTER_PROFILE", tuple(reversed(InstallationProfile))))
        image = environment.get("MUSTER_LAUNCHER_IMAGE", "")
        if profile.has_jobs and not image:
            raise SystemExit(
                f"MUSTER_LAUNCHER_IMAGE is not set, and with MUSTER_PROFILE={profile} Muster runs TrainingJobs: run "
                f"{profile.overlay_command}, set profile to jobs in the chart, or add components/jobs to your overlay, "
                "after components/health and components/burn-in: they set the profile, the image and the roles."
            )
        checkers = environment.get("MUSTER_CHECKER_NAMESPACE", "") if profile.has_tests else ""
        if profile.has_tests and not profile.has_jobs and not checkers:
            raise SystemExit(
                f"MUSTER_CHECKER_NAMESPACE is not set, and with MUSTER_PROFILE={profile} checkers test nodes: run "
                f"{profile.overlay_command}, set checkers.enabled in the chart, add components/checkers to your "
                "overlay, or set MUSTER_PROFILE=health."
            )
        pod_name = environment.get("POD_NAME", "")
        name = f"{COORDINATOR_SERVICE}.{namespace}.svc"
        return cls(
            namespace=namespace,
            profile=profile,
            pod_name=pod_name,
            pod_ip=environment.get("POD_IP", ""),
            node_addresses=node_addresses(environment),
            identity=f"{pod_name or socket.gethostname()}_{uuid.uuid4().hex[:8]}",
            launcher_image=image,
            coordinator_url=environment.get("MUSTER_COORDINATOR_URL", f"https://{name}:8443"),
            coordinator_name=environment.get("MUSTER_COORDINATOR_NAME", name),
            coordinator_port=_port(environment, "MUSTER_COORDINATOR_PORT", 8443),
            probe_port=_port(environment, "MUSTER_PROBE_PORT", 8080),
            metrics_port=_port(environment, "MUSTER_METRICS_PORT", 8445),
            worlds_port=_port(environment, "MUSTER_WORLDS_PORT", 8081),
            certificate_issuer=_choice(environment, "MUSTER_CERTIFICATE_ISSUER", (OWN_ISSUER, EXTERNAL_ISSUER)),
            checker_namespace=checkers,
            agent_namespace=environment.get("MUSTER_AGENT_NAMESPACE", ""),
            agent_silence_seconds=_seconds(environment, "MUSTER_AGENT_SILENCE_SECONDS", 600, least=20),
            log_level=environment.get("MUSTER_LOG_LEVEL", "INFO").upper(),
        )

    def for_workers(self, ca_bundle: str, accelerator_resource: str) -> WorkerSettings:
        """The settings that this installation adds to every worker.

        Args:
            ca_bundle: the authorities by which launchers know this installation, as PEM.
            accelerator_resource: the FleetPolicy's.
        """
        return WorkerSettings(
            launcher_image=self.launcher_image,
            coordinator_url=self.coordinator_url,
            coordinator_name=self.coordinator_name,
            ca_bundle=ca_bundle,
            accelerator_resource=accelerator_resource,
        )


def _port(environment: Mapping[str, str], name: str, default: int) -> int:
    value = environment.get(name, str(default))
    if not value.isdigit() or int(value) > 65535:
        raise SystemExit(f"{name}={value!r} is not a port: give a number from 0 to 65535.")
    return int(value)


def _seconds(environment: Mapping[str, str], name: str, default: int, least: int) -> int:
    value = environment.get(name, str(default))
    if not value.isdigit() or int(value) < least:
        raise SystemExit(f"{name}={value!r} is no time: give whole seconds, {least} or more.")
    return int(value)


def _choice(environment: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """The value of a variable that must be one of `values`; the first of them where it is not set."""
    value = environment.get(name, values[0])
    if value not in values:
        raise SystemExit(f"{name}={value!r} is not known: give {' or '.join(values)}.")
    return value
