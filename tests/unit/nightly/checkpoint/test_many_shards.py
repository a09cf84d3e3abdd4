"""A checkpoint of as many shards as the largest jobs write."""

from bench import dcp_files
from tests.unit.checkpoint.recordings import START_NS, InMemory, complete


def test_a_hundred_thousand_shards_are_one_checkpoint():
    tensors = dcp_files.sharded(1, 100_000, rows=1, columns=1)
    (pieces,) = tensors.values()
    content = bytes(pieces[0].length)
    files = InMemory([("step-500/.metadata", dcp_files.metadata_of(tensors))])
    for piece in pieces:
        files.put(f"step-500/{piece.shard}", content, at_ns=START_NS)
    assert complete(files) == [(500, "step-500")]
    files.put("step-500/__77777_0.distcp", content[:-1], at_ns=START_NS)
    assert complete(files) == []
