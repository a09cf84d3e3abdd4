"""PyTorch DCP, on checkpoints that torch really wrote, whole and incomplete."""

from __future__ import annotations

import os
import pickle
import pickletools
from pathlib import Path

import pytest
from bench import dcp_files
from tests.unit.checkpoint.recordings import StorageInfo
from tests.unit.checkpoint.sweeps import (
    assert_that_a_changed_byte_is_read_or_refused,
    assert_that_a_piece_costs_a_few_turns,
    assert_that_all_sizes_are_read,
    assert_that_metadata_that_ends_early_is_refused,
    of_frames_that_end_within_pieces,
)

from muster.node.checkpoint.dcp import MetadataError, shard_sizes
from muster.node.checkpoint.find import Finder


def found(checkpoint):
    return [(item.step, item.path) for item in Finder(str(checkpoint.parent)).find()]


def test_a_whole_checkpoint_is_complete(dcp):
    assert found(dcp) == [(40, str(dcp))]


def test_the_sizes_read_from_the_metadata_are_those_that_torch_wrote(dcp):
    on_disk = {path.name: path.stat().st_size for path in dcp.glob("*.distcp")}
    assert len(on_disk) == 2
    assert shard_sizes((dcp / ".metadata").read_bytes()) == on_disk


def test_a_missing_shard(dcp):
    (dcp / "__1_0.distcp").unlink()
    assert found(dcp) == []


def test_a_shard_that_lacks_its_last_byte(dcp, cut):
    cut(dcp / "__1_0.distcp", 1)
    assert found(dcp) == []


def newer_by(shard, seconds):
    moment = (shard.parent / ".metadata").stat().st_mtime_ns + int(seconds * 1e9)
    os.utime(shard, ns=(moment, moment))


@pytest.mark.parametrize("seconds", [0.005, 1.9])
def test_a_shard_stamped_by_a_clock_that_is_a_little_ahead(dcp, seconds):
    newer_by(dcp / "__0_0.distcp", seconds)
    assert found(dcp) == [(40, str(dcp))]


@pytest.mark.parametrize("seconds", [2.1, 3600])
def test_a_shard_of_a_later_save_over_this_one(dcp, seconds):
    newer_by(dcp / "__0_0.distcp", seconds)
    assert found(dcp) == []


def test_a_shard_that_was_just_begun_again_within_what_clocks_differ(dcp, cut):
    cut(dcp / "__0_0.distcp", 100)
    newer_by(dcp / "__0_0.distcp", 0.005)
    assert found(dcp) == []


def test_metadata_that_was_not_renamed_yet(dcp):
    (dcp / ".metadata").rename(dcp / ".metadata.tmp")
    assert found(dcp) == []


@pytest.mark.parametrize("keep", [0, 1, 0.3, 0.6, 0.99], ids=lambda keep: f"keep {keep}")
def test_torn_metadata(dcp, keep):
    data = (dcp / ".metadata").read_bytes()
    (dcp / ".metadata").write_bytes(data[: int(len(data) * keep) if keep < 1 else len(data) - 1])
    assert found(dcp) == []


def test_metadata_that_ends_anywhere(dcp):
    assert_that_metadata_that_ends_early_is_refused((dcp / ".metadata").read_bytes(), every=13)


def test_metadata_with_a_byte_changed_is_read_or_refused(dcp):
    assert_that_a_changed_byte_is_read_or_refused((dcp / ".metadata").read_bytes(), every=3 * 29)


@pytest.mark.parametrize("data", [b"garbage" * 100, b"\x80\x04\xff", bytes(1000), b"\x80\x04]\x94."], ids=repr)
def test_metadata_that_is_garbage(dcp, data):
    (dcp / ".metadata").write_bytes(data)
    with pytest.raises(MetadataError):
        shard_sizes(data)
    assert found(dcp) == []


class Evil:
    def __reduce__(self):
        return os.mkdir, ("/nonexistent/__0_0.distcp",)


def test_metadata_is_never_unpickled():
    assert shard_sizes(pickle.dumps([Evil(), "__0_0.distcp"])) == {"__0_0.distcp": 1}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_pickle_protocol_is_read(protocol):
    shared = "__0_0.distcp"
    pieces = [StorageInfo(shared, 0, 300), StorageInfo(shared, 300, 70000), StorageInfo("__1_0.distcp", 2**33, 5)]
    assert shard_sizes(pickle.dumps(pieces, protocol)) == {"__0_0.distcp": 70300, "__1_0.distcp": 2**33 + 5}


SPARSE = {f"tensor-{n}": [dcp_files.Piece((0,), (n,), f"__{n % 7}_0.distcp", 0, 300 * n)] for n in range(1, 400)}


@pytest.mark.parametrize(
    "tensors",
    [SPARSE, of_frames_that_end_within_pieces(100), dcp_files.sharded(40, 12), dcp_files.sharded(1, 300)],
    ids=["each its own", "frames end within pieces", "sharded", "a shard for each piece"],
)
def test_the_sizes_of_a_metadata_of_many_pieces(tensors):
    assert_that_all_sizes_are_read(tensors)


@pytest.mark.parametrize(("tensors", "ranks"), [(5, 20), (1, 100)], ids=["tensors", "shards"])
def test_a_piece_costs_a_few_turns_and_not_one_for_each_opcode(tensors, ranks):
    assert_that_a_piece_costs_a_few_turns(tensors, ranks)


def test_a_piece_whose_shard_has_no_readable_name():
    pieces = [StorageInfo("__0_0.distcp", 0, 300), StorageInfo(b"__1_0.distcp", 0, 300)]
    with pytest.raises(MetadataError, match="name"):
        shard_sizes(pickle.dumps(pieces, 4))


class Torchless(pickle.Unpickler):
    """Reads what torch wrote into the records of the bench."""

    def find_class(self, module, name):
        known = {kind: found for found, kind in dcp_files.PLACES.items()}
        parts = {"__new__": lambda cls, *_: object.__new__(cls), "__setstate__": lambda self, state: None}
        return known.get((module, name)) or type(name, (), parts)


def opcodes(metadata, since, until):
    """Names of opcodes; by which number one refers back, and how wide integers are, depends on what is before."""
    widths = {"LONG_BINGET": "BINGET", "BININT2": "BININT1", "BININT": "BININT1"}
    found = [(opcode.name, argument) for opcode, argument, _ in pickletools.genops(metadata)]
    places = [place for place, pair in enumerate(found) if pair[1] in (since, until)]
    return [widths.get(name, name) for name, _ in found[places[0] : places[-1]]]


@pytest.mark.parametrize("version", ["2.4", "2.6", "2.15"])
def test_the_bench_makes_metadata_as_torch_does(version):
    recorded = Path(__file__).parent / f"data/torch-{version}-step-40/.metadata"
    with recorded.open("rb") as stream:
        loaded = Torchless(stream).load()
    pieces = {
        dcp_files.index_of(index.fqn, index.index, getattr(index, "offset", None)): dcp_files.StorageInfo(**vars(info))
        for index, info in loaded.storage_data.items()
    }
    made = dcp_files.pickled(
        {"state_dict_metadata": [dcp_files.Metadata(), dcp_files.Size()], "storage_data": pieces, "storage_meta": 0}
    )
    expected = opcodes(recorded.read_bytes(), "relative_path", "storage_meta")
    assert len(expected) > 300
    assert opcodes(made, "relative_path", "storage_meta") == expected


def test_the_step_is_the_last_number_in_the_name(dcp):
    renamed = dcp.rename(dcp.parent / "epoch_3_step_0000041")
    assert found(renamed) == [(41, str(renamed))]


def test_without_a_number_in_its_name_the_step_is_not_known(dcp):
    assert found(dcp.rename(dcp.parent / "final")) == []


def test_the_directory_itself_may_be_the_checkpoint(dcp):
    assert [item.path for item in Finder(str(dcp)).find()] == [str(dcp)]
