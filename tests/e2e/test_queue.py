"""Two jobs and too few nodes: the second waits, `kubectl muster` says for what, and it starts when there is room."""

from __future__ import annotations

import json
from collections.abc import Callable

from testbed.bed import Bed
from testbed.jobs import Job
from testbed.kube import wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]


def test_a_second_job_waits_for_nodes_says_so_and_starts_when_the_first_has_ended(
    bed: Bed, submit: Callable[..., Job]
) -> None:
    first = submit("first", nodes=3, trainer=LONG)
    first.wait_step(5)
    second = submit("second", nodes=2, trainer=SHORT)
    wait_until("the second to wait", lambda: second.status().get("waiting"))
    status = second.status()
    assert (status["state"], status["reason"]) == ("Pending", "InsufficientNodes")
    message = next(each["message"] for each in status["conditions"] if each["type"] == "Placed")
    assert "needs 2 nodes: 1 of the fleet's 4 is free and suitable" in message
    assert "3 in use" in message

    explained = bed.muster("status", second.name, "-n", second.namespace)
    assert (explained.returncode, explained.stderr) == (0, "")
    assert "InsufficientNodes" in explained.stdout
    assert f"{first.namespace}/{first.name}" in explained.stdout
    answer = json.loads(bed.muster("status", second.name, "-n", second.namespace, "-o", "json").stdout)
    assert answer["waiting"]["needs"] == 2
    shown = bed.muster("status", first.name, "-n", first.namespace)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Running" in shown.stdout
    assert all(node in shown.stdout for node in first.current().nodes)
    tree = bed.muster("nodes")
    assert (tree.returncode, tree.stderr) == (0, "")
    assert first.name in tree.stdout

    first.delete()
    assert second.completion()["result"] == "Succeeded"
