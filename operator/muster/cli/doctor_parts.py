"""Check the parts of an installation that run: operator, images, pods, leader, agents, and whether jobs may start.

Tests: tests/unit/cli/test_doctor_parts.py.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from muster import __version__
from muster.answers.clock import ERROR
from muster.answers.jobsonnodes import jobs_on_nodes
from muster.answers.markednodes import REMOVING_COMMANDS, read_node
from muster.answers.text_parts import count
from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.api.installation import POLICY_COMMAND, InstallationProfile
from muster.api.namespaces import SYSTEM
from muster.api.nodehealth import NodeHealth
from muster.api.sizes import SIZES, size_of
from muster.api.trainingjob import TrainingJob
from muster.cli.doctor_rows import (
    DEPLOYMENT,
    INSTALL,
    MAX_MESSAGE,
    NO_DEPLOYMENT,
    Check,
    ClusterReader,
    DoctorRow,
    UnreadableError,
    apply_again,
    container_of,
    define_again,
    deployment,
    name_of,
    passed,
    profile_of,
    short_list,
    unknown,
    variable_of,
    wrong,
)
from muster.cli.errors import one_line
from muster.health.silence import AGENT_SILENT
from muster.kube import decode, paths
from muster.kube.decode import Undecodable
from muster.queueing.enabling import NOT_ENABLED, add_limit_command
from muster.queueing.priority_classes import classes_without_effect
from muster.world.resources import amount

RELEASE = re.compile(r"v?(?P<version>(?P<major>\d+)\.(?P<minor>\d+)\.\d+.*)")
"""The tag of a release; other tags, such as digests of the content, always differ between images."""
NAME_THE_TAG = "to have versions compared, name the tag of the release beside the digest: IMAGE:VERSION@DIGEST"
NO_REGISTRY = "muster.invalid/"
# The operator's variable with the namespace of each DaemonSet that is part of the installation, and its name.
DAEMONS = {"agent": ("MUSTER_AGENT_NAMESPACE", "muster-agent"), "checker": ("MUSTER_CHECKER_NAMESPACE", "muster-check")}
NOT_PULLED = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
NOT_STARTED = frozenset({"CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
OUT_OF_MEMORY = "OOMKilled"
RESTARTS = 3
RESTART_AGE = timedelta(hours=1)
RENEWAL = timedelta(seconds=10)
"""A renewal of the lease that takes longer than this is given up, so a larger difference is one of clocks."""


# The operator


async def check_operator(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the operator's replicas are available."""
    operator = await cluster.get(DEPLOYMENT)
    if operator is None:
        return [wrong("operator", NO_DEPLOYMENT, INSTALL)]
    wanted = operator["spec"].get("replicas", 1)
    available = operator.get("status", {}).get("availableReplicas", 0)
    text = f"Deployment muster in namespace {SYSTEM} has {available} of {wanted} replicas available"
    if wanted == 0:
        return [wrong("operator", text, f"kubectl -n {SYSTEM} scale deployment muster --replicas=2")]
    if available < wanted:
        remedy = f"see the rows pods and jobs, and why: kubectl -n {SYSTEM} describe deployment muster"
        return [wrong("operator", text, remedy)]
    return passed("operator", f"{available} of {wanted} replicas are available")


async def check_size(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the operator's memory fits the number of nodes in the cluster."""
    resources = container_of(await deployment(cluster)).get("resources", {})
    nodes = len(await cluster.read_all(paths.core("nodes"), lambda _: None))
    size = size_of(nodes)
    if size is None:
        raise UnreadableError(
            f"the cluster has {nodes:,} nodes, and Muster was measured with {SIZES[-1].nodes:,} at most",
            "watch its memory and CPU: docs/sizes.md says how they grow",
        )
    limit, request = (resources.get(part, {}).get("memory", "") for part in ("limits", "requests"))
    set_both = (
        f"set them in your overlay or chart, and at once: kubectl -n {SYSTEM} set resources deployment/muster "
        f"-c operator --requests=cpu={size.cpu_request},memory={size.memory_request} "
        f"--limits=memory={size.memory_limit}"
    )
    fits = f"{nodes:,} nodes, for which docs/sizes.md has {size.memory_request} and a limit of {size.memory_limit}"
    if limit and amount("memory", limit) < amount("memory", size.memory_limit):
        return [wrong("size", f"the operator's memory limit is {limit}, and the cluster has {fits}", set_both)]
    if amount("memory", request or "0") < amount("memory", size.memory_request):
        return passed("size", f"the operator requests {request or 'no memory'}, and the cluster has {fits}", set_both)
    return passed("size", f"{request} of memory and the limit {limit or '(none)'} fit {nodes:,} nodes")


async def daemons(cluster: ClusterReader) -> dict[str, tuple[str, dict[str, Any] | None]]:
    """Return namespace and DaemonSet of agents and checkers that are part of the installation, by part."""
    operator = await deployment(cluster)
    read = {}
    for part, (variable, name) in DAEMONS.items():
        if namespace := variable_of(operator, variable):
            path = paths.group("apps/v1", "daemonsets", namespace=namespace, name=name)
            read[part] = namespace, await cluster.get(path)
    return read


async def check_images(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the images are of a registry that exists, and those of releases of versions that work together."""
    operator = await deployment(cluster)
    images = {"operator": container_of(operator)["image"], "launcher": variable_of(operator, "MUSTER_LAUNCHER_IMAGE")}
    parts = await daemons(cluster)
    images |= {part: container_of(daemon)["image"] for part, (_, daemon) in parts.items() if daemon}
    profile = await profile_of(cluster)
    rows = []
    if not images["launcher"] and profile.has_jobs:
        text = "Deployment muster names no image of the launcher (variable MUSTER_LAUNCHER_IMAGE)"
        rows.append(wrong("images", text, apply_again(profile)))
    if unset := [part for part, image in images.items() if image.startswith(NO_REGISTRY)]:
        text = f"no registry is set for the image of: {', '.join(unset)}"
        rows.append(wrong("images", text, _registry_remedy(profile)))
    tags = {part: tag for part, image in images.items() if (tag := tag_of(image))}
    text = f"tags: {', '.join(f'{part} {tag}' for part, tag in tags.items()) or 'none'}"
    untagged = [part for part, image in images.items() if image and part not in tags]
    text += f"; without a tag, and not compared: {', '.join(untagged)}" if untagged else ""
    releases = [release for tag in tags.values() if (release := RELEASE.fullmatch(tag))]
    one_version = f"have all of one version: {apply_again(profile)}"
    if _too_far_apart(releases):
        rows.append(wrong("images", f"the versions are more than one minor version apart; {text}", one_version))
    several = len({release["version"] for release in releases}) > 1
    remedies = [f"not urgent, they work together: {one_version}"] if several else []
    remedies += [f"not urgent: {NAME_THE_TAG}"] if untagged else []
    return rows or passed("images", text, "; ".join(remedies))


async def check_command(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether this command and the operator are of versions that work together."""
    tag = tag_of(container_of(await deployment(cluster))["image"])
    own, operator = RELEASE.fullmatch(__version__), RELEASE.fullmatch(tag)
    if own is None or operator is None:
        text = f"this command is {__version__}; the operator's image does not name its version"
        return passed("command", text, "" if tag else f"not urgent: {NAME_THE_TAG}")
    text = f"this command is {__version__}, and the operator {operator['version']}"
    if _too_far_apart([own, operator]):
        remedy = "install the command of the operator's version (docs/cli.md), or upgrade Muster (docs/install.md)"
        return [wrong("command", f"{text}: they are more than one minor version apart", remedy)]
    return passed("command", f"{text}: they work together")


def _registry_remedy(profile: InstallationProfile) -> str:
    folder = "default" if profile.has_jobs else "observe"  # those of the other profiles are on top of it
    return (
        f"name yours: newName and newTag in manifests/overlays/{folder}/kustomization.yaml or your own overlay, by sed "
        f"in the files of a release (docs/install.md), images.registry in the chart; then {profile.overlay_command}"
    )


def _too_far_apart(releases: Sequence[re.Match[str]]) -> bool:
    """Whether not all of these may work together (docs/versions.md): one minor version lies between two at most."""
    minors = [int(release["minor"]) for release in releases] or [0]
    return len({release["major"] for release in releases}) > 1 or max(minors) - min(minors) > 1


def tag_of(image: str) -> str:
    """Return the tag of an image, "" where it is named by its digest alone."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[2]


# Pods


async def check_pods(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether a pod of Muster's cannot pull its image, restarts repeatedly, or fits no node."""
    namespaces = [SYSTEM, *(namespace for namespace, _ in (await daemons(cluster)).values())]
    now, rows = cluster.now(), []
    for namespace in namespaces:
        try:
            troubles = await cluster.read_all(
                paths.core("pods", namespace=namespace), lambda data: pod_trouble(msgspec.json.decode(data), now)
            )
        except UnreadableError as error:
            rows.append(unknown("pods", error))
            continue
        rows += _trouble_rows(namespace, [trouble for trouble in troubles if trouble])
    return rows or passed("pods", f"none in {', '.join(namespaces)} is in trouble")


PodTrouble = tuple[str, str, str, str]  # reason, pod, node, message


def pod_trouble(pod: Mapping[str, Any], now: datetime) -> PodTrouble | None:
    """Return what keeps a pod from running, if anything does."""
    name, node, status = name_of(pod), pod["spec"].get("nodeName", ""), pod.get("status", {})
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    for container in containers:
        waiting = container.get("state", {}).get("waiting", {})
        last = container.get("lastState", {}).get("terminated", {})
        ended = datetime.fromisoformat(last["finishedAt"]) if last.get("finishedAt") else None
        if last.get("reason") == OUT_OF_MEMORY and ended and now - ended < RESTART_AGE:
            return OUT_OF_MEMORY, name, node, f"{count(container.get('restartCount', 0), 'restart')}"
        if waiting.get("reason") in NOT_PULLED | NOT_STARTED:
            return waiting["reason"], name, node, waiting.get("message", "")
        if container.get("restartCount", 0) >= RESTARTS and ended and now - ended < RESTART_AGE:
            return "Restarts", name, node, f"{container['restartCount']} times, last: {last.get('reason', '')}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return "Unschedulable", name, node, condition.get("message", "")
    return None


def _trouble_rows(namespace: str, troubles: list[PodTrouble]) -> Iterator[DoctorRow]:
    """Yield one row for each reason: a fleet has thousands of agents."""
    for reason, number in Counter(trouble[0] for trouble in troubles).most_common():
        _, pod, node, message = next(trouble for trouble in troubles if trouble[0] == reason)
        on_node = f" on {node}" if node else ""
        text = f"{reason} of {count(number, 'pod')} in namespace {namespace}, e.g. {pod}{on_node}"
        text += f": {one_line(message)[:MAX_MESSAGE]}" if message else ""
        why = f"kubectl -n {namespace} describe pod {pod}"
        if reason == OUT_OF_MEMORY:
            remedy = f"raise its memory limit in your overlay (docs/sizes.md; for the operator see the row size); {why}"
        elif reason in NOT_PULLED:
            remedy = f"push the image, or correct its name or imagePullSecrets in your overlay; {why}"
        elif reason in NOT_STARTED or reason == "Restarts":
            remedy = f"see its last lines: kubectl -n {namespace} logs {pod} --previous; and {why}"
        else:
            remedy = f"give it a node, or let it tolerate the taints; {why}"
        yield wrong("pods", text, remedy)


# The leader


async def _lease(cluster: ClusterReader) -> Mapping[str, Any]:
    lease = await cluster.get(paths.leases(SYSTEM, "muster-leader"))
    return lease or {"metadata": {}, "spec": {}}


def _renewals(lease: Mapping[str, Any]) -> tuple[datetime | None, datetime | None]:
    """Return when the lease was renewed: by the leader's clock, and by the API server's, which dates managed fields."""
    renewed = lease["spec"].get("renewTime")
    dates = [entry["time"] for entry in lease["metadata"].get("managedFields") or () if entry.get("time")]
    return (
        datetime.fromisoformat(renewed) if renewed else None,
        max(map(datetime.fromisoformat, dates), default=None),
    )


async def check_leader(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether a replica leads: whether it has renewed the lease within the lease's duration."""
    lease = await _lease(cluster)
    holder, (by_leader, by_server) = lease["spec"].get("holderIdentity", ""), _renewals(lease)
    renewed = by_server or by_leader
    remedy = "see why none can: kubectl -n muster-system logs -l app.kubernetes.io/name=muster --prefix --tail=20"
    if not holder or renewed is None:
        return [wrong("leader", f"no replica leads: Lease muster-leader in namespace {SYSTEM} is not held", remedy)]
    age = (cluster.now() - renewed).total_seconds()
    if age > lease["spec"].get("leaseDurationSeconds", 0) + ERROR.total_seconds():
        text = f"no replica leads: {holder} has not renewed Lease muster-leader for {age:.0f} s"
        return [wrong("leader", text, remedy)]
    return passed("leader", f"{holder} leads")


async def check_clock(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the leader's clock agrees with the API server's."""
    lease = await _lease(cluster)
    by_leader, by_server = _renewals(lease)
    if by_leader is None:
        raise UnreadableError("no replica has renewed Lease muster-leader", "see the row leader")
    ahead = by_leader - (by_server or cluster.now())
    seconds = abs(ahead.total_seconds())
    holder = lease["spec"].get("holderIdentity", "")
    remedy = f"set the clock of the node of {holder}, or of the API server: timedatectl there shows whether it is "
    remedy += f"synchronized; kubectl -n {SYSTEM} get pods -o wide names the node"
    if ahead > ERROR:
        return [wrong("clock", f"the leader's clock is {seconds:.0f} s ahead of the API server's", remedy)]
    if by_server and -ahead > RENEWAL:
        return [wrong("clock", f"the leader's clock is {seconds:.0f} s behind the API server's", remedy)]
    return passed("clock", "the leader's clock agrees with the API server's")


# Agents and checkers


async def check_daemons(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether agents and checkers are ready on all nodes that they are for."""
    rows, texts = [], []
    for part, (namespace, daemon) in (await daemons(cluster)).items():
        _, name = DAEMONS[part]
        if daemon is None:
            text = f"DaemonSet {name} in namespace {namespace} is missing, and Deployment muster trusts it"
            remedy = f"{apply_again(await profile_of(cluster))}; docs/install.md says how to do without"
            rows.append(wrong("agents", text, remedy))
            continue
        status = daemon.get("status", {})
        ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
        texts.append(f"{part}s are ready on {ready} of {wanted} nodes")
        if ready < wanted:
            text = f"DaemonSet {name} in namespace {namespace} is ready on {ready} of {wanted} nodes"
            rows.append(wrong("agents", text, f"kubectl -n {namespace} get pods -o wide shows where not"))
    return rows or passed("agents", "; ".join(texts) or "neither agents nor checkers are installed")


async def check_node_health(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the agent of each node reports, and sees all of its node."""
    namespace, daemon = (await daemons(cluster)).get("agent", ("", None))
    if daemon is None:
        return []
    selector = daemon["spec"]["template"]["spec"].get("nodeSelector", {})
    nodes, healths = await asyncio.gather(
        cluster.read_all(paths.core("nodes"), decode.node),
        cluster.read_all(paths.muster("nodehealths"), decode.custom(NodeHealth)),
    )
    names = [node.name for node in nodes if selector.items() <= node.labels.items()]
    by_name = {health.metadata.name: health.status for health in healths if isinstance(health, NodeHealth)}
    of_nodes = {name: by_name[name] for name in names if name in by_name}
    silent = [name for name, status in of_nodes.items() if any(it.reason == AGENT_SILENT for it in status.findings)]
    absent = [name for name in names if name not in of_nodes or of_nodes[name].agent is None]
    pods = f"kubectl -n {namespace} get pods -o wide names the pod of each node"
    rows = [
        wrong("node health", f"{text}: {short_list(listed)}", f"{pods}, kubectl -n {namespace} logs POD says why")
        for text, listed in (
            (f"no agent has reported from {count(len(absent), 'node')}", absent),
            (f"the agent is silent on {count(len(silent), 'node')}", silent),
        )
        if listed
    ]
    rows += _problem_rows({name: status.agent.problem for name, status in of_nodes.items() if status.agent})
    return rows or passed("node health", f"{len(of_nodes)} agents report, and see all of their nodes")


def _problem_rows(problems: Mapping[str, str]) -> Iterator[DoctorRow]:
    by_text: dict[str, list[str]] = {}
    for node, problem in problems.items():
        # A node without GPUs has no driver, and nothing is wrong.
        others = [part for part in problem.split("; ") if part and not part.startswith("no driver")]
        if others:
            by_text.setdefault("; ".join(others), []).append(node)
    for text, nodes in sorted(by_text.items(), key=lambda item: -len(item[1])):
        remedy = f"docs/node-agent.md says what agents need; kubectl get nodehealth {nodes[0]} -o yaml has the text"
        finding = f"agents of {count(len(nodes), 'node')} cannot see all: {one_line(text)[:MAX_MESSAGE]}"
        yield wrong("node health", f"{finding} ({short_list(nodes)})", remedy)


# Which jobs may start


async def check_marks(cluster: ClusterReader) -> list[DoctorRow]:
    """Check that no node has a mark of Muster's where no operator updates it."""
    if await cluster.get(DEPLOYMENT) is not None:
        return passed("marks", "an operator is installed, which updates taints and conditions")
    nodes = await cluster.read_all(paths.core("nodes"), read_node)
    marked = [node.name for node in nodes if node.is_tainted or node.has_condition]
    if not marked:
        return passed("marks", "no node has a taint or condition of Muster's")
    text = f"no operator updates the taint or condition of {count(len(marked), 'node')}: {short_list(marked)}"
    return [wrong("marks", text, f"install Muster again, or remove them: {'; '.join(REMOVING_COMMANDS)}")]


async def fleet_policies(cluster: ClusterReader) -> list[FleetPolicy | Undecodable]:
    """Read all FleetPolicies; only `default` counts."""
    return await cluster.read_all(paths.muster("fleetpolicies"), decode.custom(FleetPolicy))


async def check_policy(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether there is the FleetPolicy that counts, and no other."""
    policies = {decode.object_key(policy)[1]: policy for policy in await fleet_policies(cluster)}
    default, rows = policies.get("default"), []
    if default is None:
        has_jobs = (await profile_of(cluster)).has_jobs
        text = f"there is no FleetPolicy default, so {'no job starts' if has_jobs else 'the defaults apply'}"
        remedy = f"create it from a copy that was kept; for a new installation: {POLICY_COMMAND}"
        rows.append(wrong("policy", text, remedy))
    elif isinstance(default, Undecodable):
        text = f"FleetPolicy default cannot be read by this version: {one_line(default.error)[:MAX_MESSAGE]}"
        rows.append(wrong("policy", text, "correct it: kubectl edit fleetpolicy default"))
    if others := sorted(policies.keys() - {"default"}):
        text = f"only FleetPolicy default counts, and there are others: {short_list(others)}"
        rows.append(wrong("policy", text, f"kubectl delete fleetpolicy {' '.join(others)}"))
    return rows or passed("policy", "FleetPolicy default is there")


async def default_policy(cluster: ClusterReader) -> FleetPolicy | None:
    """Read the FleetPolicy that counts; None: there is none, or this version cannot read it."""
    default = next((it for it in await fleet_policies(cluster) if decode.object_key(it)[1] == "default"), None)
    return default if isinstance(default, FleetPolicy) else None


async def check_profile(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the profile has the parts that the FleetPolicy asks for."""
    profile, policy = await profile_of(cluster), await default_policy(cluster)
    if policy is not None and (unmet := profile.unmet(policy.spec)):
        needed = profile.needed(policy.spec)
        remedy = (
            f"{define_again(needed)}, then the overlay: {needed.overlay_command}; or add its components to your own, "
            "or set profile in both charts"
        )
        return [wrong("profile", unmet, remedy)]
    return passed("profile", str(profile))


async def check_scope(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the FleetPolicy's scope selects nodes."""
    policy = await default_policy(cluster)
    selector = policy.spec.scope.node_selector if policy is not None else None
    if selector is None:
        return passed("scope", "all nodes are Muster's (no spec.scope.nodeSelector in FleetPolicy default)")
    nodes = await cluster.read_all(paths.core("nodes"), decode.node)
    inside = [node.name for node in nodes if selector.selects(node.labels)]
    if not inside:
        text = "spec.scope.nodeSelector of FleetPolicy default selects no node, so Muster does nothing"
        return [wrong("scope", text, "correct it, or label nodes: kubectl edit fleetpolicy default")]
    text = f"{len(inside)} of {count(len(nodes), 'node')} are Muster's"
    keys = [*selector.match_labels, *(condition.key for condition in selector.match_expressions)]
    open_keys = [key for key in dict.fromkeys(keys) if not _is_closed_to_kubelets(key)]
    if not open_keys:
        return passed("scope", text)
    return passed(
        "scope",
        f"{text}; kubelets may change the label of their own node: {short_list(open_keys)}",
        "not urgent: select nodes by labels with the prefix node-restriction.kubernetes.io/, so that no node joins or "
        "leaves the scope by its kubelet's credential (docs/security.md)",
    )


def _is_closed_to_kubelets(key: str) -> bool:
    """Whether NodeRestriction refuses a kubelet to change a label of this key."""
    domain = f".{key.partition('/')[0]}"
    return domain.endswith((".node-restriction.kubernetes.io", ".node-role.kubernetes.io"))


async def check_namespaces(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether jobs of some namespace may start, and whether those of the enabled ones may hold nodes."""
    default = await default_policy(cluster)
    if default is None or not (await profile_of(cluster)).has_jobs:
        return []
    namespaces = await cluster.read_all(paths.core("namespaces"), decode.namespace)
    labels = {namespace.name: namespace.labels for namespace in namespaces}
    rows = list(_namespace_rows(default.spec, labels))
    return rows or passed("namespaces", f"jobs may start in {short_list(_enabled(default.spec, labels))}")


def _enabled(policy: FleetPolicySpec, labels: Mapping[str, Mapping[str, str]]) -> list[str]:
    selector = policy.queueing.namespace_selector
    return sorted(name for name in labels if selector is None or selector.selects(labels[name]))


def _namespace_rows(policy: FleetPolicySpec, labels: Mapping[str, Mapping[str, str]]) -> Iterator[DoctorRow]:
    queueing, enabled = policy.queueing, _enabled(policy, labels)
    if not enabled:
        wanted = queueing.namespace_selector.match_labels if queueing.namespace_selector else {}
        pairs = " ".join(f"{key}={value}" for key, value in wanted.items()) or "KEY=VALUE"
        text = "FleetPolicy default selects no namespace (spec.queueing.namespaceSelector), so no job starts"
        yield wrong("namespaces", text, f"enable one: kubectl label namespace NAMESPACE {pairs}")
    if queueing.default_limit == 0 and not any(limit.nodes for limit in queueing.limits):
        text = "no job may hold a node: spec.queueing of FleetPolicy default has defaultLimit 0 and no limit above 0"
        yield wrong("namespaces", text, _limit_command("NAMESPACE"))
        return
    limits = queueing.limits_of(enabled)
    listed = {limit.namespace for limit in queueing.limits}
    # Without a selector all namespaces count as enabled, also those that never train.
    unlisted = [name for name in enabled if name not in listed and limits.get(name) == 0]
    if unlisted and queueing.namespace_selector:
        text = "enabled, but spec.queueing of FleetPolicy default has no limit for it, and its defaultLimit is 0"
        yield wrong("namespaces", f"{text}: {short_list(unlisted)}", _limit_command(unlisted[0]))


def _limit_command(namespace: str) -> str:
    return f"set a limit: {add_limit_command(namespace, 8)}"


async def check_preemption(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether jobs preempt by the PriorityClasses that the FleetPolicy lists."""
    default = await default_policy(cluster)
    if default is None or not (await profile_of(cluster)).has_jobs:
        return []
    preemption = default.spec.queueing.preemption
    if not preemption.priority_classes:
        return passed("preemption", "FleetPolicy default lists no PriorityClass that preempts")
    path = paths.group("scheduling.k8s.io/v1", "priorityclasses")
    may_preempt = {it.name: it.preempts for it in await cluster.read_all(path, decode.priority_class)}
    rows = [wrong("preemption", it.finding, it.remedy) for it in classes_without_effect(preemption, may_preempt)]
    names = [listed.name for listed in preemption.priority_classes]
    return rows or passed("preemption", f"jobs preempt by {short_list(names)}")


async def check_waiting_jobs(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether jobs wait because their namespace is not enabled, or because the profile runs none."""
    profile = await profile_of(cluster)
    if not profile.has_jobs:
        return await _rows_without_jobs(cluster, profile)
    jobs = await cluster.read_all(paths.muster("trainingjobs"), decode.custom(TrainingJob))
    waiting = [job.metadata for job in jobs if isinstance(job, TrainingJob) and job.status.reason == NOT_ENABLED]
    if not waiting:
        return passed("jobs", "none waits for its namespace to be enabled")
    names = [f"{metadata.namespace}/{metadata.name}" for metadata in waiting]
    text = f"jobs wait with {NOT_ENABLED} ({len(names)}): {short_list(names)}"
    return [wrong("jobs", text, f"kubectl muster status {names[0]} has the command that enables the namespace")]


async def _rows_without_jobs(cluster: ClusterReader, profile: InstallationProfile) -> list[DoctorRow]:
    if holding := await holding_jobs(cluster):
        text = (
            f"profile {profile} runs no jobs, and jobs hold nodes ({len(holding)}): {short_list(holding)}; until they "
            "hold none, a replica with this profile neither is Ready nor leads"
        )
        remedy = (
            f"suspend, eject or delete these jobs (kubectl muster eject {holding[0]}), or go back: apply the overlay "
            f"of before again, or, if you changed nothing else, kubectl -n {SYSTEM} set env deployment/muster "
            f"MUSTER_PROFILE={InstallationProfile.JOBS}; while no replica leads (row leader), no job can be suspended "
            "or ejected"
        )
        return [wrong("jobs", text, remedy)]
    waiting = [job for job in await _unended_jobs(cluster) if not (job.spec.suspend or job.status.is_ejected)]
    if not waiting:
        return []
    names = sorted(_called(job) for job in waiting)
    text = f"{count(len(names), 'TrainingJob')}; profile {profile} runs none: {short_list(names)}"
    remedy = (
        f"delete or suspend what is not to run, or install profile {InstallationProfile.JOBS}: "
        f"{define_again(InstallationProfile.JOBS)}, then {apply_again(InstallationProfile.JOBS)}"
    )
    return [wrong("jobs", text, remedy)]


async def holding_jobs(cluster: ClusterReader) -> list[str]:
    """Return the jobs that hold nodes: an operator without jobs does not lead while there are any."""
    return await jobs_on_nodes(await cluster.kinds(), cluster.read_all)


async def _unended_jobs(cluster: ClusterReader) -> list[TrainingJob]:
    """Return the jobs that have not ended and are not being deleted; there are none without their definitions."""
    if not await cluster.kinds() >= {"gangs", "trainingjobs"}:
        return []
    jobs = await cluster.read_all(paths.muster("trainingjobs"), decode.custom(TrainingJob))
    return [job for job in jobs if isinstance(job, TrainingJob) and job.wants_nodes]


def _called(job: TrainingJob) -> str:
    return f"{job.metadata.namespace}/{job.metadata.name}"


CHECKS: Mapping[str, Check] = {
    "operator": check_operator,
    "size": check_size,
    "images": check_images,
    "command": check_command,
    "pods": check_pods,
    "leader": check_leader,
    "clock": check_clock,
    "agents": check_daemons,
    "node health": check_node_health,
    "marks": check_marks,
    "policy": check_policy,
    "profile": check_profile,
    "scope": check_scope,
    "namespaces": check_namespaces,
    "preemption": check_preemption,
    "jobs": check_waiting_jobs,
}
