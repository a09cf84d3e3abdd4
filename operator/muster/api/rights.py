"""What the operator may do, by the first profile that does it: the one table of its rights.

`make generate` writes the roles of manifests/ and docs/reference/rights.md from it, `kubectl muster doctor` asks for
each right of it, and a test compares it with what the API server allows. A profile has the roles of those before it,
too: so no rule is repeated.

Tests: tests/unit/manifests/test_rights.py.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from muster.api.base import GROUP
from muster.api.installation import InstallationProfile
from muster.api.namespaces import CHECKERS, NODE_LEASES, SYSTEM

OBSERVE, HEALTH, BURN_IN, JOBS = InstallationProfile


def is_path(resource: str) -> bool:
    """Whether the resource of a right is a path of the API server that is no object's."""
    return resource.startswith("/")


def role_kind(namespace: str) -> str:
    """Return the kind of a role that holds in this namespace; "": in the whole cluster."""
    return "Role" if namespace else "ClusterRole"


class GrantedRight(NamedTuple):
    """One verb on one kind of object, or on one object of it, or on a path of the API server."""

    verb: str
    group: str
    resource: str  # with its subresource: nodes/status; of a path, the path
    namespace: str = ""  # "": in all namespaces, or cluster-wide
    name: str = ""  # "": all


class RoleRule(NamedTuple):
    """A rule of a role.

    Attributes:
        task: what the operator cannot do without it, after "to".
        code: the modules that make these requests.
        verbs: those that they use.
        resources: plural names, or paths that are no object's.
        group: of the resources.
        names: of the only objects that it is about.
        namespace: the only namespace in which it holds.
        note: what else a reader of the role has to know.
    """

    task: str
    code: str
    verbs: tuple[str, ...]
    resources: tuple[str, ...]
    group: str = ""
    names: tuple[str, ...] = ()
    namespace: str = ""
    note: str = ""

    def rights(self) -> Iterator[GrantedRight]:
        """Yield what it allows, one by one."""
        for resource in self.resources:
            for name in self.names or ("",):
                for verb in self.verbs:
                    yield GrantedRight(verb, self.group, resource, self.namespace, name)


class Grant(NamedTuple):
    """Rules that come with one folder of manifests/.

    Attributes:
        role: the name of its roles and bindings.
        profile: the first profile that has it.
        folder: under manifests/.
        rules: what it allows.
        condition: when it is needed; "": always, in its profile.
    """

    role: str
    profile: InstallationProfile
    folder: str
    rules: tuple[RoleRule, ...]
    condition: str = ""

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those in which it has a role, in the order of its rules; "" stands for a ClusterRole."""
        return tuple(dict.fromkeys(rule.namespace for rule in self.rules))


GRANTS = (
    Grant(
        "muster-operator",
        OBSERVE,
        "base",
        (
            RoleRule("see the FleetPolicy", "kube/informer.py", ("list", "watch"), ("fleetpolicies",), GROUP),
            RoleRule("see nodes", "kube/informer.py", ("list", "watch"), ("nodes",)),
            RoleRule(
                "see who holds a node's accelerators, and which agents are Ready",
                "kube/informer.py",
                ("list", "watch"),
                ("pods",),
            ),
            RoleRule(
                "know what is held against nodes",
                "controller/nodeperform.py, controller/forgetting.py",
                ("get", "list", "watch", "create", "delete"),
                ("nodehealths",),
                GROUP,
                note="It reads one after a write without an answer, and deletes those of machines that are gone.",
            ),
            RoleRule("write verdicts", "controller/nodeperform.py", ("patch",), ("nodehealths/status",), GROUP),
            RoleRule(
                "see whether jobs of a higher profile hold nodes",
                "controller/holdingjobs.py",
                ("list",),
                ("trainingjobs", "gangs"),
                GROUP,
                note="An operator without jobs does not lead before it has looked.",
            ),
            RoleRule(
                "publish Events",
                "kube/events.py",
                ("create", "get", "patch"),
                ("events",),
                "events.k8s.io",
                note="It reads and changes those that repeat.",
            ),
            RoleRule(
                "know whose token asks for metrics",
                "kube/access.py",
                ("create",),
                ("tokenreviews",),
                "authentication.k8s.io",
                note="Nothing is stored.",
            ),
            RoleRule(
                "know whether that user may read metrics",
                "kube/access.py",
                ("create",),
                ("subjectaccessreviews",),
                "authorization.k8s.io",
                note="Nothing is stored. An account with this right learns what others may do.",
            ),
            RoleRule("know the server's version", "kube/version.py", ("get",), ("/version",)),
            RoleRule(
                "make the lease of the leader",
                "kube/lease.py",
                ("create",),
                ("leases",),
                "coordination.k8s.io",
                namespace=SYSTEM,
                note="A name cannot limit creation.",
            ),
            RoleRule(
                "lead",
                "kube/lease.py",
                ("get", "update"),
                ("leases",),
                "coordination.k8s.io",
                ("muster-leader",),
                SYSTEM,
            ),
            RoleRule(
                "make the ConfigMap with the hours of the fleet",
                "controller/fleethours.py, controller/admission.py",
                ("create",),
                ("configmaps",),
                namespace=SYSTEM,
                note="By a dry run that the policy muster-operator has to refuse it sees that the policy is in force.",
            ),
            RoleRule(
                "count the hours of the fleet",
                "controller/fleethours.py",
                ("get", "patch"),
                ("configmaps",),
                names=("muster-fleet-hours",),
                namespace=SYSTEM,
            ),
            RoleRule(
                "see heartbeats of nodes",
                "kube/nodeleases.py",
                ("list",),
                ("leases",),
                "coordination.k8s.io",
                namespace=NODE_LEASES,
                note="This namespace exists in every cluster.",
            ),
        ),
    ),
    Grant(
        "muster-operator-cert-manager",
        OBSERVE,
        "components/cert-manager",
        (
            RoleRule(
                "serve metrics with the certificate that cert-manager issues",
                "kube/certificates.py",
                ("get",),
                ("secrets",),
                names=("muster-coordinator-tls",),
                namespace=SYSTEM,
                note="Profiles with a coordinator have this right in any case.",
            ),
        ),
        condition="cert-manager",
    ),
    Grant(
        "muster-operator-health",
        HEALTH,
        "components/health",
        (
            RoleRule(
                "request repairs",
                "controller/repairs.py",
                ("list", "create", "delete"),
                ("repairrequests",),
                GROUP,
                note="They are listed now and then where the FleetPolicy asks for repairs.",
            ),
        ),
    ),
    Grant(
        "muster-node-taint",
        HEALTH,
        "components/node-taint",
        (
            RoleRule(
                "write the taint muster.dev/unhealthy",
                "controller/nodeperform.py",
                ("get", "patch"),
                ("nodes",),
                note="The policy muster-operator refuses to change anything else.",
            ),
        ),
        condition="spec.health.enforcement: Nodes",
    ),
    Grant(
        "muster-node-condition",
        HEALTH,
        "components/node-condition",
        (
            RoleRule(
                "write the condition MusterHealthy",
                "controller/nodemarks.py",
                ("patch",),
                ("nodes/status",),
                note="The policy muster-operator refuses to change anything else.",
            ),
        ),
        condition="spec.health.nodeCondition: true",
    ),
    Grant(
        "muster-operator-burn-in",
        BURN_IN,
        "components/burn-in",
        (
            RoleRule(
                "know the keys that sign tokens of launchers and checkers",
                "coordinator/auth.py",
                ("get",),
                ("/.well-known/openid-configuration", "/openid/v1/jwks"),
            ),
            RoleRule(
                "make the coordinator's certificate",
                "kube/certificates.py",
                ("create",),
                ("secrets",),
                namespace=SYSTEM,
                note="The key of its authority lies in a Secret of its own.",
            ),
            RoleRule(
                "keep the coordinator's certificate",
                "kube/certificates.py",
                ("get", "update"),
                ("secrets",),
                names=("muster-coordinator-tls", "muster-coordinator-ca"),
                namespace=SYSTEM,
            ),
        ),
    ),
    Grant(
        "muster-operator-checkers",
        BURN_IN,
        "components/checkers",
        (
            RoleRule(
                "make the ConfigMap with the authorities that checkers trust",
                "controller/ports.py",
                ("create",),
                ("configmaps",),
                namespace=CHECKERS,
            ),
            RoleRule(
                "keep the authorities that checkers trust",
                "controller/ports.py",
                ("patch",),
                ("configmaps",),
                names=("muster-coordinator",),
                namespace=CHECKERS,
            ),
        ),
        condition="checkers",
    ),
    Grant(
        "muster-operator-jobs",
        JOBS,
        "components/jobs",
        (
            RoleRule(
                "see jobs and their records",
                "kube/informer.py",
                ("watch",),
                ("trainingjobs", "gangs"),
                GROUP,
                note="Every profile may list them.",
            ),
            RoleRule(
                "read and delete jobs",
                "controller/perform.py, kube/informer.py",
                ("get", "delete"),
                ("trainingjobs",),
                GROUP,
                note="It reads one before the job's first record is written, and where its namespace had no room; it "
                "deletes one when spec.completion.ttlSecondsAfterFinished is over.",
            ),
            RoleRule("report on jobs", "controller/perform.py", ("patch",), ("trainingjobs/status",), GROUP),
            RoleRule(
                "own objects on behalf of jobs",
                "pods/worker_pod.py",
                ("update",),
                ("trainingjobs/finalizers",),
                GROUP,
                note="Owner references with blockOwnerDeletion need it where the admission plugin "
                "OwnerReferencesPermissionEnforcement is on, as on OpenShift. There is no such subresource, so it "
                "allows nothing else.",
            ),
            RoleRule(
                "record attempts",
                "controller/records.py",
                ("get", "create", "update"),
                ("gangs",),
                GROUP,
                note="It reads one when the answer to a write was lost.",
            ),
            RoleRule(
                "see quotas",
                "kube/informer.py",
                ("list", "watch"),
                ("resourcequotas",),
                note="A job takes no node where its pods would find no room in a quota.",
            ),
            RoleRule("see which namespaces train", "kube/informer.py", ("list", "watch"), ("namespaces",)),
            RoleRule(
                "see the order of the queue",
                "kube/informer.py",
                ("list", "watch"),
                ("priorityclasses",),
                "scheduling.k8s.io",
            ),
            RoleRule(
                "create and delete workers",
                "controller/perform.py",
                ("get", "create", "delete"),
                ("pods",),
                note="It creates one in a dry run, too, to try a template, and reads one to tell a worker from a "
                "foreign pod.",
            ),
            RoleRule(
                "bind workers in pools that Muster binds itself (FleetPolicy.spec.pools)",
                "controller/perform.py",
                ("create",),
                ("pods/binding",),
            ),
            RoleRule(
                "know whether the volumes of a template can do without the cluster's scheduler",
                "controller/perform.py",
                ("get",),
                ("persistentvolumeclaims", "persistentvolumes"),
            ),
            RoleRule(
                "give workers what they share",
                "controller/perform.py, controller/history.py",
                ("create", "patch"),
                ("configmaps", "services"),
                note="Server-side apply asks for both verbs. Likewise the note of running jobs, ConfigMap "
                "muster-open-jobs.",
            ),
            RoleRule(
                "protect workers from evictions",
                "controller/perform.py",
                ("create", "patch"),
                ("poddisruptionbudgets",),
                "policy",
            ),
            RoleRule(
                "keep accounts of ended jobs",
                "controller/history.py",
                ("list", "create", "delete"),
                ("endedjobs",),
                GROUP,
                namespace=SYSTEM,
                note="None is changed.",
            ),
            RoleRule(
                "read the note of running jobs",
                "controller/history.py",
                ("get",),
                ("configmaps",),
                names=("muster-open-jobs",),
                namespace=SYSTEM,
            ),
        ),
    ),
)


def granted(profile: InstallationProfile, folders: Collection[str] = ()) -> Iterator[Grant]:
    """Yield what an operator of this profile is granted.

    Args:
        profile: the profile.
        folders: those of manifests/ that are installed beside what each installation of it has.
    """
    for grant in GRANTS:
        if profile.includes(grant.profile) and (not grant.condition or grant.folder in folders):
            yield grant
