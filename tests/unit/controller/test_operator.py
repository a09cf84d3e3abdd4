"""One process: what launchers are told when the state is unclear, what is done before it decides, when it is ill."""

import ast
import asyncio
import inspect
import socket
import ssl
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from kubernetes.aio.client import Configuration
from tests.unit.health.builders import evidence, sick
from tests.unit.health.builders import world as node_world
from tests.unit.waiting import until

from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.api.installation import InstallationProfile
from muster.api.nodehealth import NodeHealth
from muster.controller import operator, ports
from muster.controller.cluster import Cluster
from muster.controller.operator import Operator
from muster.controller.readiness import STALE_SECONDS
from muster.controller.settings import EXTERNAL_ISSUER, Settings
from muster.coordinator.auth import Caller
from muster.decision.decided import Decided
from muster.health.assess import assess
from muster.kube import certificates
from muster.kube.client import Client
from muster.kube.decode import AgentPod, Undecodable
from muster.kube.errors import Forbidden, LeadershipLost, NotFound, Unreachable
from muster.lifecycle.plan import Plan
from muster.protocol import messages
from muster.protocol.checks import (
    CHECK_PATH,
    NODE,
    PAIR,
    READY,
    CheckOrder,
    CheckReport,
    FigureReport,
    Put,
    decode_check_directive,
)
from muster.protocol.messages import EXIT, IDLE, REPORT_PATH, RUN, RUNNING, Report
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld
from muster.world.views import NodeView

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
BAD_GANG = Undecodable("ns", "j-record", "g", 50, 1, "spec.level: bad", "uid-j")
BAD_JOB = Undecodable("ns", "j", "uid-j", 50, 2, "spec.nodes: bad")
ENDED = {"result": "Failed", "reason": "X", "message": "", "time": "2026-01-31T12:00:00Z", "attempt": 1}


class Pair:
    """Certificates of which only the end is read."""

    certificate = key = b""
    parsed = SimpleNamespace(not_valid_after_utc=NOW)
    serving = property(lambda self: self)


@pytest.fixture
async def process(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[Operator]:
    """A process that has not been started: it has asked nobody anything. A parameter has settings of it.

    Its clients trust none of the machine's authorities: they are not asked for TLS, and reading those takes long.
    """
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: None)
    configuration = Configuration()
    configuration.host = "http://127.0.0.1:1"
    client = Client(configuration)
    made = Operator(
        client,
        replace(
            Settings(identity="me", launcher_image="muster/launcher", worlds_port=0, checker_namespace="muster-check"),
            **getattr(request, "param", {}),
        ),
    )
    yield made
    await made.ports.close()
    await made._lease_client.close()
    await client.close()


@pytest.fixture
def worker(process: Operator, make: Any) -> Any:
    """Worker 0 of a job that trains, as the coordinator sees it."""
    job = make.job(workers=1)
    process.cluster.jobs.store.assume(job)
    process.cluster.gangs.store.assume(make.gang(job, "p0"))
    pod = make.pod(job, 0, "p0")
    process.cluster.pods.store.assume(pod)
    return Caller("ns", pod.name, "p0", "n0", "nu")


async def open_ports(process: Operator) -> None:
    readiness, kept_of_node = process.readiness, process.nodes.reconciler.kept.decisions_of
    await process.ports.open(readiness.not_healthy, readiness.not_ready, process.kept.decisions_of, kept_of_node)


def told(process: Operator, caller: Caller) -> str | None:
    directive = process.workers.directive_for(caller)
    return directive.kind if directive else None


def test_a_worker_runs_while_all_is_clear(process: Operator, worker: Caller) -> None:
    assert told(process, worker) == RUN


def test_a_record_that_cannot_be_read_ends_nobody(process: Operator, worker: Caller, make: Any) -> None:
    gang = make.gang(make.job(), "p0")
    process.cluster.gangs.store.assume(replace(BAD_GANG, name=gang.metadata.name))
    assert process.workers.directive_for(worker) is None
    process.cluster.jobs.store.assume(make.job(workers=1, version=60, completion=ENDED))
    assert told(process, worker) == EXIT, "that the job has ended is clear"


def test_a_job_that_cannot_be_read_ends_nobody(process: Operator, worker: Caller) -> None:
    process.cluster.jobs.store.assume(BAD_JOB)
    assert process.workers.directive_for(worker) is None


def test_a_job_that_is_gone_ends_its_workers(process: Operator, worker: Caller) -> None:
    process.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    assert told(process, worker) == EXIT


def test_a_worker_keeps_its_directive_until_what_it_is_made_of_changes(process: Operator, make: Any) -> None:
    job, store = make.job(workers=2), process.cluster
    pods = [make.pod(job, index, f"p{index}") for index in range(2)]
    workers = [Caller("ns", pod.name, pod.uid, pod.node, "nu") for pod in pods]
    store.jobs.store.assume(job)
    store.gangs.store.assume(make.gang(job, "p0", "p1"))
    for pod in pods:
        store.pods.store.assume(pod)

    def report(sequence: int, address: str) -> None:
        process.hub.record(workers[1], Report(sequence, RUNNING, attempt=1, address=address, peer_port=7000))

    def served() -> Any:
        directive = process.workers.directive_for(workers[0])
        assert directive is not None
        return directive

    assert served().peers == ()
    report(1, "10.0.0.1")
    assert [peer.address for peer in served().peers] == ["10.0.0.1"]
    last = served()
    report(2, "10.0.0.1")
    assert served() is last
    report(3, "10.0.0.2")
    assert [peer.address for peer in served().peers] == ["10.0.0.2"]
    process.hub.forget("p1")
    assert served().peers == ()
    store.gangs.store.assume(make.gang(job, "p0", "p1", version=11, attempt=2))
    assert served().attempt == 2
    store.jobs.store.assume(make.job(workers=2, version=60, completion=ENDED))
    assert served().kind == EXIT


@pytest.mark.parametrize("changes", [{"owner_uid": ""}, {"owner_uid": "uid-other"}, {"uid": "p9"}])
def test_who_is_no_worker_is_told_nothing(process: Operator, worker: Caller, make: Any, changes: Any) -> None:
    pod = replace(make.pod(make.job(workers=1), 0, "p0", version=30), **changes)
    process.cluster.pods.store.assume(pod)
    assert process.workers.directive_for(worker) is None


def test_a_worker_connects_from_its_pods_address_or_its_nodes(process: Operator, worker: Caller, make: Any) -> None:
    job = make.job(workers=1)
    pod = replace(make.pod(job, 0, "p0", version=30), pod_ip="10.0.0.7", host_ip="::ffff:192.168.0.1")
    process.cluster.pods.store.assume(pod)
    assert set(process.workers.addresses_of(worker)) == {"10.0.0.7", "192.168.0.1"}
    assert process.workers.addresses_of(replace(worker, pod_uid="p9")) == ()
    process.cluster.pods.store.assume(replace(pod, resource_version=31, phase="Failed"))
    assert process.workers.addresses_of(worker) == (), "a pod that has ended is no worker of a running job"


def test_the_lease_has_connections_of_its_own(process: Operator) -> None:
    assert process.lease._client is not process.client
    assert process.lease._client.answers is process.client.answers


def test_what_writes_asks_the_lease_first(process: Operator) -> None:
    clients = {name: part._client for name, part in vars(process).items() if hasattr(part, "_client")}
    assert {"events", "history", "hours", "performer", "ports", "repairs"} <= clients.keys()
    unasked = {name for name, client in clients.items() if client.before_write != process.lease.check}
    assert unasked == {"lease", "admission"}, "the lease itself, and what writes in dry runs alone"


async def test_a_process_that_does_not_lead_writes_nothing(process: Operator) -> None:
    with pytest.raises(LeadershipLost):
        await process.client.post("/api/v1/namespaces/ns/pods", {})


def test_it_is_ill_when_an_informer_is_deaf_not_when_the_api_server_is_away(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.client.answers, "_last", process.cluster.nodes.last_contact + STALE_SECONDS - 1.0)
    assert process.readiness.not_healthy() == ""
    monkeypatch.setattr(process.client.answers, "_last", process.cluster.nodes.last_contact + STALE_SECONDS + 9.0)
    for source in process.cluster.informers[2:]:
        source.last_contact += STALE_SECONDS
    assert "has heard nothing for 309 s" in process.readiness.not_healthy()
    monkeypatch.setattr(process.client.answers, "_back_since", process.client.answers._last)
    assert process.readiness.not_healthy() == ""


async def test_a_new_leader_catches_up_and_can_be_found_before_it_decides(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts no silence before that either."""
    monkeypatch.setattr(process.ports, "_serve_metrics", lambda _: None)
    done: list[str] = []
    refusals = iter([Unreachable(0, "Unreachable", "away"), ValueError("unreadable")])

    def note(what: str, answer: Any = None) -> Any:
        async def step(*_: Any) -> Any:
            done.append(what)
            return answer

        return step

    async def refresh() -> None:
        done.append("refresh")
        for refusal in refusals:
            raise refusal

    monkeypatch.setattr(operator, "START_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(process.cluster, "wait_synced", note("synced"))
    monkeypatch.setattr(process.cluster, "refresh", refresh)
    monkeypatch.setattr(process.lease, "acquire", note("acquired"))
    monkeypatch.setattr(process.lease, "hold", note("held"))
    monkeypatch.setattr(process.ports._keeper, "ensure", note("certificates", Pair()))
    monkeypatch.setattr(process.server, "start", note("listening", 8443))
    monkeypatch.setattr(process.hub, "start_serving", lambda: done.append("serving"))
    monkeypatch.setattr(process.events, "run", note("events"))
    monkeypatch.setattr(process.ports, "renew", note("renewals"))
    monkeypatch.setattr(process.ports, "publish", note("published"))
    monkeypatch.setattr(process.reconciler, "run", note("deciding"))
    assert process.definitions is not None
    monkeypatch.setattr(process.definitions, "wait", note("compared"))
    process.definitions.problem = ""
    await process._lead()
    await asyncio.sleep(0)
    await process._loops.stop()
    order = [step for step in done if step not in ("held", "events", "renewals", "published")]
    lead = ["synced", "compared", "acquired", "refresh", "refresh", "refresh"]
    assert order == [*lead, "certificates", "listening", "serving", "deciding"]


async def test_a_standby_listens_and_names_the_leader(process: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.ports, "_serve_metrics", lambda _: None)
    answers = iter([Unreachable(0, "Unreachable", "away"), None, Pair(), Pair()])
    done: list[str] = []

    async def read() -> Any:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def start(*_: Any) -> int:
        done.append("listening")
        return 8443

    monkeypatch.setattr(ports, "CERTIFICATE_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(ports, "CERTIFICATE_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(process.ports._keeper, "read", read)
    monkeypatch.setattr(process.server, "start", start)
    monkeypatch.setattr(process.server, "load_certificate", lambda *_: done.append("renewed"))
    assert process.lease.address == ""
    listening = asyncio.create_task(process.ports.stand_by())
    await until(lambda: done == ["listening", "renewed"])
    listening.cancel()
    assert process.readiness.leader_elsewhere() == "", "nobody is known to lead"
    for address, want in (("", ""), ("10.0.0.3", "10.0.0.3:8443"), ("fd00::3", "[fd00::3]:8443")):
        process.ports._settings = replace(process.settings, pod_ip=address)
        process.ports._port = 0
        await process.ports._listen(Pair())  # type: ignore[arg-type]
        assert process.lease.address == want, "published with the next renewal"


PROFILES = [{"profile": profile, "checker_namespace": ""} for profile in InstallationProfile]
LOOPS = {
    "observe": {
        "events",
        "certificates",
        "nodes",
        "conditions of nodes",
        "forgetting machines that are gone",
        "hours of the fleet",
        "repairs",
        "maintenance windows",
        "admission policies",
    },
    "burn-in": {"thresholds", "upkeep"},
    "jobs": {"queue", "start times", "reports of preemption", "history"},
}


@pytest.mark.parametrize("process", PROFILES, indirect=True, ids=list(InstallationProfile))
def test_each_profile_has_the_loops_of_its_parts(process: Operator) -> None:
    profiles = list(InstallationProfile)
    of_it = profiles[: profiles.index(process.settings.profile) + 1]
    loops = {name for name, _ in (*process._serving_loops(), *process._deciding_loops())}
    assert loops == set().union(*(LOOPS.get(profile, ()) for profile in of_it))


@pytest.mark.parametrize("process", PROFILES[:2], indirect=True, ids=["observe", "health"])
async def test_without_a_coordinator_only_metrics_are_served_with_a_certificate_of_its_own(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be asked of the API server here, so no Secret is read or written."""
    served = []
    monkeypatch.setattr(process.ports, "_serve_metrics", served.append)
    await process.ports.lead()
    await process.ports.lead()
    assert len(served) == 2
    assert served[0] == served[1]
    assert process.server._listener is None
    assert process.lease.address == ""


@pytest.mark.parametrize("process", PROFILES[:1], indirect=True, ids=["observe"])
async def test_another_issuer_s_certificate_is_shown_where_there_is_no_coordinator(process: Operator) -> None:
    settings = replace(process.settings, certificate_issuer=EXTERNAL_ISSUER)
    made = ports.Ports(process.client, settings, process.server, process.lease)
    assert isinstance(made._keeper, certificates.CertificateKeeper)
    await made.close()


@pytest.mark.parametrize("process", PROFILES[2:3], indirect=True, ids=["burn-in"])
async def test_while_jobs_hold_nodes_a_replica_without_jobs_is_not_ready(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "synced", True)
    left, done = process._holding_jobs, []
    assert left is not None
    assert process.definitions is not None
    process.definitions._conclude("")
    assert process.readiness.not_ready() == left.problem != ""
    left.problem = ""
    assert process.readiness.not_ready() == ""

    async def acquire(lease: Any) -> None:
        done.append(lease)
        raise Unreachable(0, "Unreachable", "no further")

    async def synced() -> None:
        """All is there."""

    monkeypatch.setattr(process.cluster, "wait_synced", synced)
    monkeypatch.setattr(left, "acquire", acquire)
    with pytest.raises(Unreachable):
        await process._lead()
    assert done == [process.lease]


async def test_a_lease_that_comes_beside_older_definitions_is_given_back(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "synced", True)
    definitions, done = process.definitions, list[str]()
    assert definitions is not None

    async def acquire() -> None:
        """The definitions become older while it waits for the lease the first time."""
        done.append("acquire")
        definitions._conclude("" if "release" in done else "gangs lack a field")

    async def release() -> None:
        done.append("release")
        assert "gangs lack a field" in process.readiness.not_ready()
        definitions._conclude("")

    monkeypatch.setattr(process.lease, "acquire", acquire)
    monkeypatch.setattr(process.lease, "release", release)
    definitions._conclude("")
    await process._acquire()
    assert done == ["acquire", "release", "acquire"]
    assert process.readiness.not_ready() == ""


def test_only_a_leader_ends_beside_older_definitions(process: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(process._loops, "_end", ended.append)
    assert process.definitions is not None
    process.definitions._conclude("gangs lack a field")
    assert ended == []
    monkeypatch.setattr(process.lease, "_renewed_at", process.lease._clock())
    process.definitions._conclude("gangs lack a field")
    assert ended == [1]


@pytest.mark.parametrize(
    "process", [{"agent_namespace": "muster-agent", "agent_silence_seconds": 600_000}], indirect=True
)
async def test_an_agent_may_be_silent_for_as_long_as_is_set(process: Operator) -> None:
    process.cluster.nodes.store.assume(NodeView("n0", "nu", 1, ready=True))
    meta = {"name": "n0", "uid": "health", "resourceVersion": "1"}
    status = {"agent": {"bootId": "boot-1"}}
    process.cluster.healths.store.assume(NodeHealth.model_validate({"metadata": meta, "status": status}))
    process.cluster.agents.store.assume(AgentPod("muster-agent", "agent", "uid", 1, "n0", ready=False, starting=False))
    (seconds,) = process.nodes.worlds.pauses()
    assert seconds > 20_000, "where nothing is set, something follows within 30 s"


def test_a_standby_remembers_no_names_of_jobs_that_have_gone(process: Operator) -> None:
    process.bus.job_changed.publish(("ns", "gone"))
    assert len(process.dirty) == 0


def test_its_parts_are_made_of_parts_that_are_there() -> None:
    """In a straight list: nothing is named, not even for later, before the line that makes it, and none is changed."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(Operator.__init__))).body
    assert isinstance(made, ast.FunctionDef)
    there, early = set[str](), list[str]()
    targets = [node for node in ast.walk(made) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    assert {ast.unparse(target.value) for target in targets} == {"self"}
    assert len({target.attr for target in targets}) == len(targets)
    for statement in made.body:
        own = [node for node in ast.walk(statement) if isinstance(node, ast.Attribute)]
        own = [node for node in own if isinstance(node.value, ast.Name) and node.value.id == "self"]
        early += [node.attr for node in own if isinstance(node.ctx, ast.Load) and node.attr not in there]
        there |= {node.attr for node in own if isinstance(node.ctx, ast.Store)}
    assert early == []


def test_who_holds_the_lease_answers_itself_once_it_has_caught_up(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.lease, "_renewed_at", process.lease._clock())
    assert process.readiness.leader_elsewhere() is None
    assert "still reading" in process.readiness.not_serving()
    assert process.readiness.not_ready() == "informers have not synced yet", (
        "to lead is not asked of a replica to be ready"
    )


async def test_what_the_reconciler_keeps_is_what_is_shown(process: Operator, make: Any) -> None:
    assert process.reconciler._kept is process.kept
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process.ports._settings = replace(process.settings, probe_port=0, worlds_port=port)
    process.kept.keep(("ns", "j"), Decided(JobWorld(NOW, make.job()), process.worker_settings(), Plan()))
    await open_ports(process)
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/worlds/ns/j") as answer:
            assert (answer.status, len((await answer.text()).splitlines())) == (200, 1)
    finally:
        await process.ports.close()


async def test_what_the_loop_over_nodes_keeps_is_what_is_shown(process: Operator) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process.ports._settings = replace(process.settings, probe_port=0, worlds_port=port)
    process.nodes.reconciler.kept.assess_and_keep(assess, FleetPolicySpec(), node_world(sick(evidence("Xid", 79))))
    await open_ports(process)
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/nodes/node-1") as answer:
            assert (answer.status, len((await answer.text()).splitlines())) == (200, 1)
    finally:
        await process.ports.close()


async def test_a_port_that_is_taken_costs_the_view_and_not_the_operator(process: Operator) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        process.ports._settings = replace(process.settings, probe_port=0, worlds_port=other.getsockname()[1])
        await open_ports(process)
        await process.ports.close()


async def test_readers_of_metrics_get_the_certificate_that_was_renewed(process: Operator) -> None:
    process.ports._settings = replace(process.settings, metrics_port=0)
    authority = certificates.new_authority(datetime.now(UTC))
    trust = ssl.create_default_context(cadata=authority.certificate.decode())

    async def refused(name: str) -> str:
        metrics = process.ports._metrics
        assert metrics is not None
        connector = aiohttp.TCPConnector(ssl=trust)
        url = f"https://127.0.0.1:{metrics.port}/metrics"
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(url, server_hostname=name) as answer,
        ):
            return f"{answer.status} {await answer.text()}"

    for name in ("old", "new"):
        process.ports._serve_metrics(certificates.new_serving(authority, (name,), datetime.now(UTC)))
        assert (await refused(name)).startswith("401 send a token of this cluster")


async def test_metrics_whose_port_is_taken_cost_the_operator_nothing(process: Operator) -> None:
    pair = certificates.new_serving(certificates.new_authority(datetime.now(UTC)), ("it",), datetime.now(UTC))
    with socket.create_server(("", 0)) as other:
        process.ports._settings = replace(process.settings, metrics_port=other.getsockname()[1])
        process.ports._serve_metrics(pair)
    assert process.ports._metrics is None


class Asking:
    """A checker that waits for its answer."""

    is_open = True

    def __init__(self) -> None:
        self.on_lost: Any = None
        self.answers: list[tuple[int, bytes]] = []

    def answer(self, status: int, body: bytes) -> None:
        self.answers.append((status, body))


async def test_a_checker_gets_the_orders_of_the_gang_on_its_node_and_its_news_ring_the_job(
    process: Operator, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.lease, "_renewed_at", process.lease._clock())
    monkeypatch.setattr(process.readiness, "is_leading", True)
    monkeypatch.setattr(Cluster, "synced", True)
    job, caller = make.job(), Caller("muster-check", "c", "c-uid", "n0", "nu", "muster-check")
    process.cluster.jobs.store.assume(job)
    process.cluster.gangs.store.assume(make.gang(job, "p0", "p1", start=None))
    process.cluster.nodes.store.assume(NodeView("n0", "nu", 1))
    process.dirty._due.clear()

    def says(sequence: int, asking: Asking, seen: str = "") -> Any:
        report = CheckReport(sequence, state=READY, directive_seen=seen, hold_seconds=10.0)
        return process.server.heard(asking, caller, report, CHECK_PATH)

    first = says(1, Asking())
    assert first[0] == 200
    assert not decode_check_directive(first[1]).known, "who does not lead yet knows nothing of orders"
    assert list(process.dirty._due) == [("ns", "j")]
    waiting = Asking()
    assert says(2, waiting, messages.digest_of(first[1])) is None
    orders = NodeChecks((CheckOrder("o1", NODE),))
    process.checks.set_orders("uid-j", {"n0": orders, "n1": orders})
    assert [decode_check_directive(body).orders for _, body in waiting.answers] == [orders.orders]
    assert process.cluster.world(job).checkers["n0"].given.keys() == {"o1"}
    process.cluster.nodes.store.assume_deleted(("", "n0"), "nu")
    assert says(3, Asking())[0] == 403


async def test_a_worker_whose_pod_has_ended_is_heard_and_not_expected(
    process: Operator, worker: Caller, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.lease, "_renewed_at", process.lease._clock())
    monkeypatch.setattr(process.readiness, "is_leading", True)
    monkeypatch.setattr(Cluster, "synced", True)
    pod = make.pod(make.job(workers=1), 0, "p0", version=30, phase="Failed")
    process.cluster.pods.store.assume(pod)
    process.server.heard(Asking(), worker, Report(1, state=IDLE), REPORT_PATH)  # type: ignore[arg-type]
    assert process.hub.last("p0") is not None
    assert process.hub.expected_by_namespace() == {}


async def test_a_limit_that_counts_for_nothing_is_told_as_soon_as_it_is_set(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = list[tuple[str, str]]()
    monkeypatch.setattr(process.events, "record", lambda about, _, reason, words: told.append((reason, words)))
    caller = Caller("muster-check", "c", "c-uid", "n0", "nu", "muster-check")
    figures = (FigureReport("storage", 3.0, 1.0, "GB/s"),)
    process.checkers.record(caller, CheckReport(1, state=READY, figures=figures))
    await process.thresholds.make()
    spec = {"preflight": {"limits": [{"probe": "storage", "minimum": "9"}]}}
    meta = {"name": "default", "uid": "p", "resourceVersion": "5"}
    process.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))
    ((reason, words),) = told
    assert reason == "PreflightLimitUnused"
    assert "storage asks for 9" in words


async def test_checkers_are_told_whom_to_trust_where_they_are(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.ports, "_serve_metrics", lambda _: None)
    said: list[tuple[str, Any]] = []
    refusals: list[Exception] = [NotFound(404, "NotFound", "no namespace"), Forbidden(403, "Forbidden", "no right")]

    async def patch(path: str, body: Any, content_type: str, query: Any) -> bytes:
        if refusals:
            raise refusals.pop(0)
        said.append((path, body["data"]["ca.crt"]))
        return b"{}"

    class Certificates(Pair):
        def __init__(self, bundle: bytes) -> None:
            self.bundle = bundle

    monkeypatch.setattr(ports, "PUBLISH_RETRY_SECONDS", 0.001)
    monkeypatch.setattr(process.ports, "_client", type("Api", (), {"patch": staticmethod(patch)}))
    monkeypatch.setattr(process.server, "load_certificate", lambda *_: None)
    monkeypatch.setattr(process.ports, "_port", 8443)
    await process.ports._listen(Certificates(b"one"))  # type: ignore[arg-type]
    publishing = asyncio.create_task(process.ports.publish())
    where = "/api/v1/namespaces/muster-check/configmaps/muster-coordinator"
    await until(lambda: said == [(where, "one")])
    await process.ports._listen(Certificates(b"two"))  # type: ignore[arg-type]
    await until(lambda: said[1:] == [(where, "two")])
    publishing.cancel()


async def test_what_a_checker_puts_is_handed_to_the_other_one_at_once(
    process: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[str] = []
    monkeypatch.setattr(process.server, "notify_one_by_one", lambda pods: answered.extend(pods))
    for rank, node in enumerate(("n0", "n1")):
        order = CheckOrder("pair", PAIR, node_rank=rank, nodes=2)
        process.checkers.set_orders(f"job-of-{node}", {node: NodeChecks((order,))})
    for rank, node in enumerate(("n0", "n1")):
        answered.clear()
        report = CheckReport(1, state=READY, meeting="pair", puts=(Put(rank, "here", "eJwDAAAAAAE="),))
        process.checkers.record(Caller("muster-check", node, f"pod-{node}", node, "nu", "muster-check"), report)
    assert "pod-n0" in answered
    assert process.checkers.puts_for("n0", "pair") == [messages.encode(Put(1, "here", "eJwDAAAAAAE="))]


async def test_only_an_error_that_passes_is_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator, "START_RETRY_SECONDS", 0.0)
    answers: list[Any] = [Unreachable(0, "Unreachable", "away"), ValueError("major: 1+")]

    async def request() -> str:
        raise answers.pop(0)

    with pytest.raises(ValueError, match="major"):
        await operator._retried(request, "waiting for the API server")
    assert answers == []
