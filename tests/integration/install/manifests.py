"""What users of an installation apply."""

from typing import Any


def a_job(name: str, namespace: str, nodes: int = 2, **spec: Any) -> dict[str, Any]:
    container = {"name": "trainer", "image": "example.org/trainer:1", "command": ["python3", "train.py"]}
    return {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodes": nodes, "template": {"spec": {"containers": [container]}}, **spec},
    }
