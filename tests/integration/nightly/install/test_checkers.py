"""Checkers and an operator that trusts them: whom they trust, which pod is believed, what they are sent."""

import json
import ssl
from collections.abc import Callable
from typing import Any

from tests.integration.install import checkers

from muster.protocol import checks


def test_a_checker_trusts_reports_and_is_told(installation: Any, wait_until: Callable[..., Any]) -> None:
    replica = installation.start_leader(MUSTER_CHECKER_NAMESPACE=checkers.NAMESPACE)

    def bundle() -> str:
        found = installation.get("configmaps", checkers.HERE)["items"]
        named = [item for item in found if item["metadata"]["name"] == "muster-coordinator"]
        return str(named[0]["data"]["ca.crt"]) if named else ""

    with checkers.namespace(installation, wait_until):
        trust = ssl.create_default_context(cadata=wait_until(bundle, "the authorities are where checkers mount them"))
        trust.check_hostname = False  # it is called by its address here
        stranger = checkers.token(installation, "stranger", "default")
        status, body = checkers.report(replica, trust, stranger, 1)
        assert (status, "it runs as service account default" in json.loads(body)["error"]) == (403, True)
        assert sum(replica.samples("muster_checkers").values()) == 0
        checker = checkers.token(installation, "checker", checkers.ACCOUNT)
        sequence = iter(range(1, 1000))

        def told() -> bool:
            status, body = checkers.report(replica, trust, checker, next(sequence))
            assert status == 200, body
            directive = checks.decode_check_directive(body)
            assert directive.orders == ()
            return directive.known

        wait_until(told, "everything was decided once: nobody wants anything of this node")
        assert replica.samples("muster_checkers") == {(("state", checks.READY),): 1.0}
        assert replica.samples("muster_check_orders_open") == {(): 0.0}
