"""When the bench takes a gang for proved."""

import msgspec
import pytest
from bench.burnin import BurnIn, failed_nodes


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"profile": "Quick", "allReduce": {"nodes": 64, "gbps": "1.2"}}', []),
        (b'{"failures": [{"node": "n1"}], "untested": ["n2"]}', [{"node": "n1"}, "n2"]),
    ],
    ids=["all together were measured", "failed and untested ones"],
)
def test_only_failures_and_untested_nodes_speak_against_a_proof(text: bytes, want: list[object]) -> None:
    assert failed_nodes(msgspec.json.decode(text, type=BurnIn)) == want
    assert failed_nodes(None) == []
