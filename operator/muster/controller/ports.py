"""The ports of one operator process: probes and its last decisions for administrators; with certificates launchers,
metrics.

Tests: tests/unit/controller/test_operator.py.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from prometheus_client import Gauge, generate_latest

from muster.controller.bus import Key
from muster.controller.metrics import PATH, guarded_metrics
from muster.controller.perform import FIELD_MANAGER
from muster.controller.settings import COORDINATOR_SERVICE, EXTERNAL_ISSUER, Settings
from muster.coordinator.probes import LoopHeartbeat
from muster.coordinator.server import CoordinatorServer, load_pair, server_context
from muster.coordinator.worlds import serve_worlds
from muster.decision import decided
from muster.decision.decided import Decided
from muster.health import node_decision
from muster.health.node_decision import NodeDecision
from muster.kube import paths
from muster.kube.access import Access
from muster.kube.certificates import CertificateKeeper, Certificates, NoCertificatesError, OwnCertificates, Pair
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.errors import ApiError, NotFound
from muster.kube.lease import LeaderLease
from muster.serve import Server

CERTIFICATE_CHECK_SECONDS = 600.0
CERTIFICATE_RETRY_SECONDS = 5.0
PUBLISH_SECONDS = 30.0  # the namespace may have been deleted and created again
PUBLISH_RETRY_SECONDS = 5.0  # until checkers are installed: their pods wait for it

log = structlog.get_logger()
_expiry = Gauge(
    "muster_certificate_expiry_timestamp_seconds",
    "When this replica's serving certificate expires, in seconds since the epoch.",
)


class Ports:
    """The ports of one process; a simulator has some of its own. The holder of the lease alone makes and renews the
    coordinator's certificates; the lease publishes where this process listens. A profile without a coordinator serves
    metrics with a certificate that no Secret has.
    """

    def __init__(self, client: Client, settings: Settings, server: CoordinatorServer, lease: LeaderLease) -> None:
        self._client = client
        self._settings = settings
        self._server = server
        self._lease = lease
        is_external = settings.certificate_issuer == EXTERNAL_ISSUER
        self._keeper: CertificateKeeper | OwnCertificates = (
            CertificateKeeper(client, settings.namespace, is_external=is_external)
            if is_external or settings.profile.has_coordinator
            else OwnCertificates(settings.namespace)
        )
        self._certificates: Certificates | None = None
        self._renewed = asyncio.Event()
        self._port = 0
        self._metrics: Server | None = None
        # Questions about tokens do not wait for hundreds of pods that are being created.
        self._reviews = client.sibling()
        self._stack = contextlib.AsyncExitStack()

    @property
    def bundle(self) -> str:
        """The certificate authorities, as PEM, by which launchers and checkers know this installation; "" before they
        are known."""
        return self._certificates.bundle.decode() if self._certificates else ""

    async def open(
        self,
        not_healthy: Callable[[], str],
        not_ready: Callable[[], str],
        kept: Callable[[Key], Sequence[Decided]],
        kept_of_node: Callable[[str], Sequence[NodeDecision]],
    ) -> None:
        """Answer probes, and administrators who want to read decisions.

        An operator that cannot show decisions works all the same.

        Args:
            not_healthy: says why the process should be restarted; "" = all is well.
            not_ready: says why it could not lead now; "" = it could.
            kept: returns the last decisions about a job.
            kept_of_node: returns the last decisions about a node.
        """
        beat = LoopHeartbeat(not_healthy, not_ready)
        await self._stack.enter_async_context(beat.running())
        probes = Server(("", self._settings.probe_port), beat.endpoints(), node=self._settings.node_addresses)
        self._stack.callback(probes.close)
        try:
            worlds = await serve_worlds(
                self._settings.worlds_port,
                lambda key: [partial(decided.write, decision) for decision in kept(key)],
                lambda node: [partial(node_decision.write, decision) for decision in kept_of_node(node)],
            )
        except OSError as error:
            log.warning("decisions cannot be read", port=self._settings.worlds_port, error=str(error))
            return
        self._stack.push_async_callback(worlds.cleanup)

    async def close(self) -> None:
        """Stop answering probes, administrators and readers of metrics."""
        await self._stack.aclose()
        await self._reviews.close()

    async def stand_by(self) -> None:
        """Answer launchers with the leader's certificates while another replica leads, so that none asks in vain; and
        readers of metrics."""
        while True:
            if not self._lease.leading:
                await self._listen_with_what_there_is()
            await asyncio.sleep(CERTIFICATE_CHECK_SECONDS if self._certificates else CERTIFICATE_RETRY_SECONDS)

    async def lead(self) -> None:
        """Answer launchers as the leader; make the certificates first where this installation does, however long that
        takes."""
        while True:
            try:
                certificates = await self._keeper.ensure()
            except (ApiError, NoCertificatesError) as error:
                log.warning("no certificates yet", error=str(error))
                await asyncio.sleep(CERTIFICATE_RETRY_SECONDS)
                continue
            await self._listen(certificates)
            return

    async def renew(self, renewed: Callable[[], None]) -> None:
        """Renew the certificates in time for as long as this process leads; calls `renewed` after each renewal."""
        while True:
            await asyncio.sleep(CERTIFICATE_CHECK_SECONDS)
            try:
                fresh = await self._keeper.ensure()
            except (ApiError, NoCertificatesError) as error:
                log.warning("certificates not checked", error=str(error))
                continue
            if fresh != self._certificates:
                await self._listen(fresh)
                renewed()

    async def publish(self) -> None:
        """Publish the authorities where checkers find them, for as long as this process leads, if checkers have a
        namespace.

        Checkers mount them. A launcher's authorities come with its job.
        """
        while True:
            self._renewed.clear()
            pause = PUBLISH_SECONDS if await self._publish() else PUBLISH_RETRY_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._renewed.wait()

    async def _publish(self) -> bool:
        """Apply the ConfigMap with the authorities; returns whether that has succeeded."""
        namespace = self._settings.checker_namespace
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": COORDINATOR_SERVICE, "namespace": namespace},
            "data": {"ca.crt": self.bundle},
        }
        path = paths.core("configmaps", namespace=namespace, name=COORDINATOR_SERVICE)
        try:
            await self._client.patch(path, manifest, APPLY_PATCH, {"fieldManager": FIELD_MANAGER, "force": "true"})
        except NotFound:
            return False  # there is no such namespace: no checkers are installed
        except ApiError as error:
            log.warning("checkers do not get the certificate to trust", namespace=namespace, error=str(error))
            return False
        return True

    def _address(self) -> str:
        """The host:port at which launchers find this process; "" where it does not know its address."""
        host = self._settings.pod_ip
        if not host:
            return ""
        return f"[{host}]:{self._port}" if ":" in host else f"{host}:{self._port}"

    async def _listen_with_what_there_is(self) -> None:
        try:
            certificates = await self._keeper.read()
        except ApiError as error:
            log.warning("certificates not read", error=str(error))
            return
        if certificates is not None and not self._lease.leading:
            await self._listen(certificates)

    async def _listen(self, certificates: Certificates) -> None:
        """Answer readers of metrics with these certificates from now on, and launchers where there is a coordinator."""
        self._certificates, serving = certificates, certificates.serving
        _expiry.set(serving.parsed.not_valid_after_utc.timestamp())
        self._renewed.set()
        self._serve_metrics(serving)
        if not self._settings.profile.has_coordinator:
            return
        if self._port:
            self._server.load_certificate(serving.certificate, serving.key)
            return
        self._port = await self._server.start("", self._settings.coordinator_port, serving.certificate, serving.key)
        self._lease.address = self._address()

    def _serve_metrics(self, serving: Pair) -> None:
        """Serve metrics over HTTPS. An operator whose metrics cannot be read works all the same."""
        context = server_context()
        load_pair(context, serving.certificate, serving.key)
        if self._metrics is not None:
            self._metrics.tls = context
            return
        endpoint = guarded_metrics(Access(self._reviews), generate_latest, asyncio.get_running_loop())
        try:
            self._metrics = Server(("", self._settings.metrics_port), {PATH: endpoint}, context)
        except OSError as error:
            log.warning("metrics cannot be read", port=self._settings.metrics_port, error=str(error))
            return
        self._stack.callback(self._metrics.close)
