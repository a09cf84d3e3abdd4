"""Simulated files, looked at by what is shipped."""

from datetime import UTC, datetime

import pytest

from muster.node.checkpoint.dcp import shard_sizes
from muster.node.checkpoint.find import Finder, ScanOptions
from simulate.clocks import WallClock
from simulate.storage import SHARD_BYTES, Directory, Save, SimulatedFiles, metadata_of

NODES = ("n0", "n1", "n2")


class Stage:
    """A directory into which three nodes save, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.directory = Directory("/ckpt", WallClock(lambda: self.now), node_clocks=7)

    def save(self, step: int, ranks: int = 3, *, ends: bool = True) -> Save:
        """The ranks write their parts, one each second, and the first of them the marker."""
        save = self.directory.begin(step, 1, len(NODES))
        for rank in range(ranks):
            self.now += 1.0
            self.directory.write_shard(save, rank, NODES[rank], self.now)
        if ends:
            self.now += 0.01
            self.directory.write_metadata(save, NODES[0], self.now)
        return save

    def finder(self, node: str = "n0") -> Finder:
        return Finder("/ckpt", now=lambda: self.now, files=SimulatedFiles(self.directory, node, lambda: self.now))

    def steps(self, node: str = "n0") -> list[int]:
        """What somebody on a node finds who has never looked before."""
        return [checkpoint.step for checkpoint in self.finder(node).find()]

    def truth(self) -> list[int]:
        return [save.step for save in self.directory.whole().values()]


def test_the_metadata_says_what_the_shards_have() -> None:
    assert shard_sizes(metadata_of(3)) == {f"__{rank}_0.distcp": SHARD_BYTES for rank in range(3)}


def test_a_whole_checkpoint_is_found_with_its_time() -> None:
    stage = Stage()
    stage.save(10)
    found = stage.finder().find()
    assert [(one.step, one.path) for one in found] == [(10, "/ckpt/step-10")]
    written = datetime.fromtimestamp(found[0].written_ns / 1e9, UTC)
    assert abs((written - stage.directory.clock()).total_seconds()) < 0.6
    assert stage.directory.newest_shown("n1", stage.now) == 10


def test_what_a_save_that_was_cut_short_has_left_is_none_until_it_is_saved_over() -> None:
    stage = Stage()
    stage.save(10, ranks=2, ends=False)
    assert (stage.steps(), stage.truth()) == ([], [])
    stage.save(10)
    assert (stage.steps(), stage.truth()) == ([10], [10])


def test_a_save_over_a_whole_one_tears_it_until_its_end() -> None:
    stage = Stage()
    stage.save(10)
    stage.now += 60.0
    finder = stage.finder()
    assert [one.step for one in finder.find()] == [10]
    save = stage.directory.begin(10, 2, len(NODES))
    for rank, node in enumerate(NODES):
        stage.directory.write_shard(save, rank, node, stage.now)
        assert (finder.find(), stage.truth()) == ([], [])
    stage.directory.write_metadata(save, NODES[0], stage.now)
    assert ([one.step for one in finder.find()], stage.truth()) == ([10], [10])


@pytest.mark.parametrize("lost", ["a shard", "all"])
def test_what_is_lost_is_seen_at_the_next_light_look(lost: str) -> None:
    stage = Stage()
    stage.save(10)
    stage.save(20)
    finder = stage.finder()
    assert [one.step for one in finder.find()] == [20, 10]
    if lost == "all":
        stage.directory.remove("/ckpt/step-20", stage.now)
    else:
        stage.directory.lose_shard("/ckpt/step-20", 1, stage.now)
    found = list(finder.scan(ScanOptions(thorough=False)))[-1]
    assert [one.step for one in found.checkpoints] == [10]
    assert [one.step for one in found.incomplete] == [20] * (lost == "a shard")
    assert (stage.truth(), stage.directory.newest_shown("n0", stage.now)) == ([10], 10)


def test_a_lagging_node_sees_files_late_out_of_order_and_all_in_the_end() -> None:
    incomplete, whole_after = 0, []
    for lagging in (f"m{number}" for number in range(20)):
        stage = Stage()
        stage.directory.lag_seconds[lagging] = 30.0
        stage.save(10)
        begun = stage.now
        assert (stage.steps("n0"), stage.steps(lagging)) == ([10], [])
        finder = stage.finder(lagging)
        while not [one for one in finder.find() if one.judged]:
            incomplete += bool(list(finder.scan(ScanOptions()))[-1].incomplete)
            assert stage.directory.newest_shown(lagging, stage.now) == 0
            stage.now += 1.0
        whole_after.append(stage.now - begun)
        assert stage.directory.newest_shown(lagging, stage.now) == 10
    assert incomplete, "nobody ever saw the marker before a shard"
    assert 3.0 < min(whole_after) < max(whole_after) <= 31.0
