"""Pods as people have them are what an API server takes: the jobs, and the workers that are made of them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.unit.lifecycle.test_pods_as_they_come import CASES, job_of, pod_of


@pytest.fixture(scope="module")
def namespace(kubectl: Callable[..., Any]) -> str:
    """With a service account, which a controller would make."""
    made = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "team"}},
    ]
    found = kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
    assert found.returncode == 0, found.stderr
    return "team"


@pytest.mark.parametrize("case", CASES)
def test_a_job_is_accepted(case: str, apply: Callable[..., Any]) -> None:
    found = apply(yaml.safe_load(CASES[case].read_text()), "--dry-run=server")
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("case", CASES)
def test_its_workers_are_accepted(case: str, namespace: str, apply: Callable[..., Any]) -> None:
    pod = pod_of(job_of(case))
    assert pod["metadata"]["namespace"] == namespace
    found = apply(pod, "--dry-run=server")
    assert found.returncode == 0, found.stderr
