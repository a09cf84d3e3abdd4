"""Check what an installation has from the API server: its version, definitions, rights, admission and network policies.

Tests: tests/unit/cli/test_doctor_cluster.py.
"""

import asyncio
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from muster import __version__
from muster.answers.text_parts import count
from muster.api.base import GROUP, VERSION
from muster.api.fleetpolicy import Enforcement, FleetPolicySpec
from muster.api.installation import InstallationProfile, name_component
from muster.api.labels import LabelSelector
from muster.api.namespaces import CHECKERS, SYSTEM
from muster.api.rights import GRANTS, Grant, GrantedRight, granted, is_path, role_kind
from muster.cli.doctor_parts import default_policy, holding_jobs
from muster.cli.doctor_rows import (
    DEPLOYMENT,
    Check,
    ClusterReader,
    DoctorRow,
    UnreadableError,
    apply_again,
    define_again,
    deployment,
    missing_right,
    passed,
    profile_of,
    read_object,
    short_list,
    unknown,
    variable_of,
    wrong,
)
from muster.kube import paths
from muster.kube.errors import Forbidden
from muster.kube.schemas import MODELS, fields_of, fields_of_model, outermost
from muster.kube.version import UnsupportedServerError, check_server_version

OBSERVE, HEALTH, _, JOBS = InstallationProfile
SCOPE = "muster-scope"  # the one that lets through what it cannot judge: it is asked about every write of a Node
_POLICIES = {"muster-operator": OBSERVE, "muster-records": OBSERVE, SCOPE: HEALTH, "muster-training": JOBS}
AGENT = "muster-agent"
_ADMISSION = "admissionregistration.k8s.io/v1"
_RBAC = "rbac.authorization.k8s.io/v1"
_REVIEWS = paths.group("authorization.k8s.io/v1", "subjectaccessreviews")


async def check_server(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the API server is new enough."""
    try:
        version = await check_server_version(cluster.client)
    except UnsupportedServerError as error:
        return [wrong("server", str(error), "upgrade the cluster: kubectl version shows what it has")]
    except Forbidden as error:
        raise missing_right("get", "/version") from error
    return passed("server", f"Kubernetes {version}")


# Definitions


def definition_path(resource: str) -> str:
    """Return the path of the CustomResourceDefinition of one of Muster's kinds."""
    return paths.group("apiextensions.k8s.io/v1", "customresourcedefinitions", name=f"{resource}.{GROUP}")


async def check_definitions(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the definitions that the profile needs are there, and all have the fields of this version."""
    definitions = await asyncio.gather(*(cluster.get(definition_path(resource)) for resource in MODELS))
    profile = await profile_of(cluster)
    remedy = define_again(profile)
    rows = []
    for resource, definition in zip(MODELS, definitions, strict=True):
        name = f"CustomResourceDefinition {resource}.{GROUP}"
        if definition is None:
            if profile.needs(resource):
                rows.append(wrong("definitions", f"{name} is missing", remedy))
        elif (schema := served_schema(definition)) is None:
            rows.append(wrong("definitions", f"{name} does not serve {VERSION}", remedy))
        else:
            rows += _field_rows(name, fields_of(schema), fields_of_model(resource), remedy)
    return rows or passed("definitions", f"those of {profile} are there, with the fields of version {__version__}")


def _field_rows(name: str, served: frozenset[str], modelled: frozenset[str], remedy: str) -> Iterator[DoctorRow]:
    missing, extra = outermost(modelled - served), outermost(served - modelled)
    if missing:
        yield wrong(
            "definitions",
            f"{name} is older than this command ({__version__}): it has no {short_list(missing)}",
            f"apply the definitions of the operator's version, or use the kubectl muster of that version; {remedy}",
        )
    if extra:
        yield wrong(
            "definitions",
            f"{name} is newer than this command ({__version__}): it also has {short_list(extra)}",
            "install the kubectl muster of the operator's version: kubectl -n muster-system get deployment muster -o "
            "wide shows its image",
        )


def served_schema(definition: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the version that Muster uses; None: it is not served."""
    versions = (entry for entry in definition["spec"]["versions"] if entry["name"] == VERSION and entry["served"])
    return next((entry["schema"]["openAPIV3Schema"] for entry in versions), None)


# Rights


class NeededRight(NamedTuple):
    """A right without which the operator, or an agent, cannot do one of its tasks."""

    task: str
    right: GrantedRight


AGENT_RIGHTS = (NeededRight("report evidence", GrantedRight("patch", GROUP, "nodehealths/status")),)


class _Answer(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Answer


# The variable that a component sets, and its value.
_VARIABLES = {
    "components/cert-manager": ("MUSTER_CERTIFICATE_ISSUER", "external"),
    "components/checkers": ("MUSTER_CHECKER_NAMESPACE", CHECKERS),
}


async def _grants(cluster: ClusterReader) -> list[Grant]:
    """Return what the operator has to be granted: by its profile, by the components that it shows to have, and by what
    the FleetPolicy asks for."""
    operator, policy = await cluster.get(DEPLOYMENT), await default_policy(cluster)
    folders = [
        folder
        for folder, (variable, value) in _VARIABLES.items()
        if operator is not None and variable_of(operator, variable) == value
    ]
    if policy is not None:
        folders += _asked_folders(policy.spec)
    return list(granted(await profile_of(cluster), folders))


def _asked_folders(policy: FleetPolicySpec) -> Iterator[str]:
    """Yield the components that a FleetPolicy asks for."""
    of_pools = [pool.health.enforcement for pool in policy.pools if pool.health is not None]
    if Enforcement.NODES in (policy.health.enforcement, *of_pools):
        yield "components/node-taint"
    if policy.health.node_condition:
        yield "components/node-condition"


def _grant_again(profile: InstallationProfile, grants: Iterable[Grant]) -> str:
    """Return what to do where something of these grants is missing: an overlay may lack the components among them."""
    components = [name_component(grant.folder.removeprefix("components/")) for grant in grants if grant.condition]
    return apply_again(profile) + (f", with {' and '.join(components)}: docs/install.md" if components else "")


async def check_operator_rights(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the operator's service account may do what the operator does."""
    grants = await _grants(cluster)
    needed = [NeededRight(rule.task, right) for grant in grants for rule in grant.rules for right in rule.rights()]
    remedy = _grant_again(await profile_of(cluster), grants)
    return await _right_rows(cluster, "operator rights", SYSTEM, "muster", needed, remedy)


async def check_agent_rights(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the agents' service account may report evidence."""
    namespace = variable_of(await deployment(cluster), "MUSTER_AGENT_NAMESPACE")
    if not namespace:
        return []
    remedy = apply_again(await profile_of(cluster))
    return await _right_rows(cluster, "agent rights", namespace, AGENT, AGENT_RIGHTS, remedy)


async def _right_rows(
    cluster: ClusterReader, check: str, namespace: str, account: str, needed: Sequence[NeededRight], remedy: str
) -> list[DoctorRow]:
    allowed = await asyncio.gather(*(_is_allowed(cluster, namespace, account, right) for _, right in needed))
    missing = [task_right for task_right, may in zip(needed, allowed, strict=True) if not may]
    if not missing:
        return passed(
            check, f"service account {namespace}/{account} has the {count(len(needed), 'right')} that it needs"
        )
    first = dict(reversed(missing))  # right of each task
    texts = [f"{task} ({right.verb} {right.resource})" for task, right in reversed(first.items())]
    user = f"system:serviceaccount:{namespace}:{account}"
    return [
        wrong(
            check,
            f"service account {namespace}/{account} may not {short_list(texts)}",
            f"{remedy}; look again with kubectl auth can-i {_question(missing[0].right)} --as {user}",
        )
    ]


def _question(right: GrantedRight) -> str:
    """Return the arguments by which kubectl auth can-i asks for a right."""
    if is_path(right.resource):
        return f"{right.verb} {right.resource}"
    resource, _, subresource = right.resource.partition("/")
    subject = f"{resource}.{right.group}" if right.group else resource
    subject += f"/{right.name}" if right.name else ""
    subject += f" --subresource={subresource}" if subresource else ""
    return f"{right.verb} {subject} {f'-n {right.namespace}' if right.namespace else '-A'}"


async def _is_allowed(cluster: ClusterReader, namespace: str, account: str, right: GrantedRight) -> bool:
    spec: dict[str, Any] = {
        "user": f"system:serviceaccount:{namespace}:{account}",
        "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"],
    }
    if is_path(right.resource):
        spec["nonResourceAttributes"] = {"verb": right.verb, "path": right.resource}
    else:
        resource, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        attributes |= {"namespace": right.namespace, "name": right.name}
        spec["resourceAttributes"] = {key: value for key, value in attributes.items() if value}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    try:
        answer = await cluster.client.post(_REVIEWS, body, guarded=False)
    except Forbidden as error:
        raise missing_right("create", _REVIEWS) from error
    return msgspec.json.decode(answer, type=_Review).status.allowed


async def check_roles(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the operator's roles are there and bound to its service account, and none of a higher profile."""
    profile = await profile_of(cluster)
    rows = []
    for grant in await _grants(cluster):
        for namespace in grant.namespaces:
            rows += await _role_rows(cluster, grant.role, namespace, _grant_again(profile, [grant]))
    beyond = [grant for grant in GRANTS if not profile.includes(grant.profile) and await _is_granted(cluster, grant)]
    if beyond:
        profiles = ",".join(dict.fromkeys(grant.profile for grant in beyond))
        text = f"the operator has rights that profile {profile} does not use: {short_list([it.role for it in beyond])}"
        unmarked = "" if profile.acts_on_nodes else " and no node has a taint or condition of Muster's"
        remedy = (
            f"once it leads with profile {profile}{unmarked}: kubectl delete "
            f"clusterrole,clusterrolebinding,role,rolebinding -A -l 'muster.dev/profile in ({profiles})'; or the "
            "components of your overlay are in the wrong order: the last one sets the profile"
        )
        if await holding_jobs(cluster):
            remedy = "keep them while jobs hold nodes: see the row jobs"
        rows.append(wrong("roles", text, remedy))
    return rows or passed("roles", f"those of profile {profile} are there, and bound to the operator's service account")


def _role_path(namespace: str, name: str, *, binding: bool) -> str:
    return paths.group(
        _RBAC, f"{role_kind(namespace).lower()}{'bindings' if binding else 's'}", namespace=namespace, name=name
    )


async def _role_rows(cluster: ClusterReader, name: str, namespace: str, remedy: str) -> list[DoctorRow]:
    kind, where = role_kind(namespace), f" in namespace {namespace}" if namespace else ""
    role = await cluster.get(_role_path(namespace, name, binding=False))
    binding = await cluster.get(_role_path(namespace, name, binding=True))
    texts = []
    if role is None:
        texts.append(f"{kind} {name}{where} is missing")
    if binding is None:
        texts.append(f"{kind}Binding {name}{where} is missing")
    elif not _is_bound(binding, kind, name):
        texts.append(f"{kind}Binding {name}{where} does not give {kind} {name} to {SYSTEM}/muster")
    return [wrong("roles", text, remedy) for text in texts]


async def _is_granted(cluster: ClusterReader, grant: Grant) -> bool:
    """Whether one of the grant's roles is bound to the operator."""
    for namespace in grant.namespaces:
        binding = await cluster.get(_role_path(namespace, grant.role, binding=True))
        if binding is not None and _is_bound(binding, role_kind(namespace), grant.role):
            return True
    return False


def _is_bound(binding: Mapping[str, Any], kind: str, name: str) -> bool:
    role = binding["roleRef"]
    subjects = {(subject["kind"], subject.get("namespace"), subject["name"]) for subject in binding.get("subjects", ())}
    return (role["kind"], role["name"]) == (kind, name) and ("ServiceAccount", SYSTEM, "muster") in subjects


# Admission policies


def policies_of(profile: InstallationProfile) -> tuple[str, ...]:
    """Return the names of the policies that a profile has besides that of the agents."""
    return tuple(name for name, first in _POLICIES.items() if profile.includes(first))


async def check_admission(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the admission policies are there and refuse what they find."""
    profile = await profile_of(cluster)
    names = policies_of(profile)
    if variable_of(await deployment(cluster), "MUSTER_AGENT_NAMESPACE"):
        names = (AGENT, *names)
    rows = [row for name in names for row in await _admission_rows(cluster, name, apply_again(profile))]
    return rows or passed("admission", f"{', '.join(names)} are in force")


async def _admission_rows(cluster: ClusterReader, name: str, remedy: str) -> list[DoctorRow]:
    policy = await cluster.get(paths.group(_ADMISSION, "validatingadmissionpolicies", name=name))
    binding = await cluster.get(paths.group(_ADMISSION, "validatingadmissionpolicybindings", name=name))
    rows = []
    if policy is None:
        rows.append(wrong("admission", f"ValidatingAdmissionPolicy {name} is missing", remedy))
    elif name != SCOPE and policy["spec"].get("failurePolicy", "Fail") != "Fail":
        text = f"ValidatingAdmissionPolicy {name} lets through what it cannot judge: its failurePolicy is not Fail"
        rows.append(wrong("admission", text, remedy))
    if binding is None:
        rows.append(wrong("admission", f"ValidatingAdmissionPolicyBinding {name} is missing", remedy))
    elif binding["spec"]["policyName"] != name or "Deny" not in binding["spec"]["validationActions"]:
        text = f"ValidatingAdmissionPolicyBinding {name} does not refuse what policy {name} forbids (validationActions)"
        rows.append(wrong("admission", text, remedy))
    return rows


# Network policies


async def check_network(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether the network policies let operator and agents reach the API server."""
    agents = variable_of(await deployment(cluster), "MUSTER_AGENT_NAMESPACE")
    addresses = await _server_addresses(cluster)
    rows = []
    for namespace, name in ((SYSTEM, "muster"), *(((agents, AGENT),) if agents else ())):
        path = paths.group("networking.k8s.io/v1", "networkpolicies", namespace=namespace)
        try:
            policies = await cluster.read_all(path, read_object)
        except UnreadableError as error:
            rows.append(unknown("network", error))
            continue
        if name not in {policy["metadata"]["name"] for policy in policies}:
            text = f"NetworkPolicy {name} in namespace {namespace} is missing"
            rows.append(wrong("network", text, apply_again(await profile_of(cluster))))
        labels = {"app.kubernetes.io/name": name}
        blocked = [(host, port) for host, port in addresses if not lets_out(policies, labels, host, port)]
        if blocked:
            text = f"pods {name} in namespace {namespace} may not reach the API server at "
            remedy = f"add the port to the egress of NetworkPolicy {name}, in your overlay and at once: kubectl -n "
            remedy += f"{namespace} edit networkpolicy {name}"
            rows.append(wrong("network", text + short_list(_texts(blocked)), remedy))
    return rows or passed("network", f"the API server may be reached at {short_list(_texts(addresses))}")


def _texts(addresses: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{host}:{port}" for host, port in addresses]


async def _server_addresses(cluster: ClusterReader) -> list[tuple[str, int]]:
    path = paths.group("discovery.k8s.io/v1", "endpointslices", namespace="default")
    slices = await cluster.read_all(path, read_object, {"labelSelector": "kubernetes.io/service-name=kubernetes"})
    addresses = sorted(
        (address, port["port"])
        for part in slices
        for endpoint in part.get("endpoints") or ()
        for address in endpoint["addresses"]
        for port in part.get("ports") or ()
    )
    if not addresses:
        raise UnreadableError(
            "no address of the API server is known (EndpointSlice kubernetes in namespace default)",
            "kubectl get endpointslices -n default kubernetes -o yaml",
        )
    return addresses


def lets_out(policies: Iterable[Mapping[str, Any]], labels: Mapping[str, str], host: str, port: int) -> bool:
    """Whether network policies let pods with these labels connect to an address outside the pod network."""
    specs = [policy["spec"] for policy in policies]
    limiting = [
        spec
        for spec in specs
        if "Egress" in spec.get("policyTypes", ["Egress"] if "egress" in spec else [])
        and LabelSelector.model_validate(spec.get("podSelector") or {}).selects(labels)
    ]
    rules = [rule for spec in limiting for rule in spec.get("egress") or ()]
    return not limiting or any(_has_port(rule, port) and _has_peer(rule, host) for rule in rules)


def _has_port(rule: Mapping[str, Any], port: int) -> bool:
    ports = rule.get("ports")
    return not ports or any(
        entry.get("protocol", "TCP") == "TCP"
        and (
            entry.get("port") is None
            or (isinstance(entry["port"], int) and entry["port"] <= port <= entry.get("endPort", entry["port"]))
        )
        for entry in ports
    )


def _has_peer(rule: Mapping[str, Any], host: str) -> bool:
    """Whether a rule is for this address: selectors of pods are not, as the API server is no pod with labels."""
    peers = rule.get("to")
    address = ipaddress.ip_address(host)
    blocks = [peer["ipBlock"] for peer in peers or () if "ipBlock" in peer]
    return not peers or any(
        address in ipaddress.ip_network(block["cidr"])
        and not any(address in ipaddress.ip_network(other) for other in block.get("except", ()))
        for block in blocks
    )


CHECKS: Mapping[str, Check] = {
    "server": check_server,
    "definitions": check_definitions,
    "operator rights": check_operator_rights,
    "agent rights": check_agent_rights,
    "roles": check_roles,
    "admission": check_admission,
    "network": check_network,
}
