"""Checkpoints that a job describes itself: `spec.checkpoint.pattern`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.checkpoint.objects import Objects
from tests.unit.checkpoint.recordings import ROOT, InMemory, archive, finder_of, prefixes, safetensors
from tests.unit.checkpoint.test_store import Clock

from muster.node.checkpoint.find import MAX_SIBLINGS, Finder
from muster.node.checkpoint.formats.own import own
from muster.node.checkpoint.formats.table import FORMATS, formats_by
from muster.node.checkpoint.listing import THIS_MACHINE
from muster.node.checkpoint.local import list_local_shares
from muster.node.checkpoint.store import Store
from muster.node.launcher.scan_child import ScanServer
from muster.protocol.checkpoints import MAX_LISTED

FILE, DIRECTORY = "state-{step}.npz", "run_{step}/DONE"


def found(files: InMemory, pattern: str) -> list[tuple[int, str, str]]:
    looked = finder_of(files, formats_by(pattern)).find()
    return [(one.step, one.path.rpartition("/")[2], one.format) for one in looked]


def why(files: InMemory, pattern: str) -> str:
    finder = finder_of(files, formats_by(pattern))
    finder.find()
    return next((verdict.problem for verdict in finder._verdicts.values() if verdict.problem), "")


def test_a_file_each() -> None:
    files = InMemory([("state-9.npz", b"a"), ("state-10.npz", b"b"), ("state-11.npz", b""), ("state-12.npz.new", b"c")])
    assert found(files, FILE) == [(10, "state-10.npz", "Pattern"), (9, "state-9.npz", "Pattern")]
    assert why(files, FILE) == "state-11.npz is empty"


def test_a_file_that_tells_its_end_is_whole_only_with_it() -> None:
    whole = archive({"step": 5})
    for there, files in prefixes([("state-5.pt", whole)]):
        expected = [(5, "state-5.pt", "Pattern")] if there else []
        assert found(files, "state-{step}.pt") == expected
    pickled = InMemory([("state-5.pt", b"\x80\x04K\x01.")])
    assert found(pickled, "state-{step}.pt") == [(5, "state-5.pt", "Pattern")], "what is called so need not be torch's"


@pytest.mark.parametrize("place", ["on a file system", "in a store"])
@pytest.mark.parametrize(
    "pattern", ["state-{step}.npz", "{step}.safetensors", "flax_{step}.msgpack", "model{step}", "s{step}_"]
)
def test_whatever_the_end_of_its_name_is(place: str, pattern: str, tmp_path: Path) -> None:
    """What looks there leaves names out before anybody is asked about each."""
    written = [(pattern.replace("{step}", str(step)), safetensors()) for step in (9, 10)]
    written += [(pattern.replace("{step}", "10") + ".new", safetensors()), ("events.out.tfevents.10", b"x")]
    clock = Clock()
    if place == "in a store":
        objects = Objects()
        for name, content in written:
            objects.put(f"run-7/{name}", content)
        root, files = "s3://bucket/run-7", Store("s3://bucket/run-7", objects.opened, now=clock)
    else:
        for name, content in written:
            (tmp_path / name).write_bytes(content)
        root, files = str(tmp_path), THIS_MACHINE
    finder = Finder(root, now=clock, files=files, pause=clock.pause, formats=formats_by(pattern))
    assert [(one.step, one.path) for one in finder.find()] == [
        (10, f"{root}/{written[1][0]}"),
        (9, f"{root}/{written[0][0]}"),
    ]


@pytest.mark.parametrize(
    ("step_at", "is_found"),
    [(None, False), (0, True), (((1 << 40) - 4096) * 7 // 15, True), ((1 << 40) - 4096, True)],
    ids=str,
)
def test_a_few_places_show_that_a_huge_file_has_only_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_at: int | None, is_found: bool
) -> None:
    with (tmp_path / "state-800.bin").open("wb") as file:
        file.truncate(1 << 40)
        if step_at is not None:
            file.seek(step_at)
            file.write(b"\1")
    read: list[int] = []
    part = THIS_MACHINE.part

    def counted(path: str, start: int, length: int, sign: object = None) -> bytes:
        read.append(length)
        return part(path, start, length)

    monkeypatch.setattr(THIS_MACHINE, "part", counted)
    clock = Clock()
    finder = Finder(str(tmp_path), now=clock, pause=clock.pause, formats=formats_by("state-{step}.bin"))
    assert [one.step for one in finder.find()] == ([800] if is_found else [])
    assert sum(read) <= 17 * 4096
    finder.find()
    assert sum(read) <= 17 * 4096, "each version of a file is read once"


def test_a_file_unlike_the_others_counts_once_none_of_them_is_left() -> None:
    """As after a change to a form of the program's own: what is known of an unchanged file goes by the others, too."""
    files = InMemory([("step_700.pt", archive({})), ("step_800.pt", b"own form")])
    finder = finder_of(files, formats_by("step_{step}.pt"))
    assert [one.step for one in finder.find()] == [700]
    del files.contents[f"{ROOT}/step_700.pt"]
    assert [one.step for one in finder.find()] == [800]


def test_only_some_of_thousands_of_files_are_read_for_a_comparison() -> None:
    class Counted(InMemory):
        read: list[str]

        def part(self, path: str, start: int, length: int, sign: object = None) -> bytes:
            self.read.append(path)
            return super().part(path, start, length)

    files = Counted([(f"step_{step}.pt", b"own form") for step in range(3000)])
    files.read = []
    finder = finder_of(files, formats_by("step_{step}.pt"))
    assert len(finder.find()) == MAX_LISTED
    assert len(files.read) <= MAX_LISTED + MAX_SIBLINGS


def test_a_link_to_a_file_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "blob").write_bytes(b"x")
    (tmp_path / "state-3.npz").symlink_to(tmp_path / "store" / "blob")
    clock = Clock()
    finder = Finder(str(tmp_path), now=clock, pause=clock.pause, formats=formats_by(FILE))
    assert [one.path for one in finder.find()] == [str(tmp_path / "state-3.npz")]


def test_a_directory_each_with_what_is_written_last() -> None:
    save = [("run_7/a", b"1"), ("run_7/b", b"2"), ("run_7/DONE", b"")]
    for _, files in prefixes(save):
        expected = [(7, "run_7", "Pattern")] if f"{ROOT}/run_7/DONE" in files.contents else []
        assert found(files, DIRECTORY) == expected


def test_what_is_written_into_it_again_makes_it_torn() -> None:
    files = InMemory([("run_7/a", b"1"), ("run_7/DONE", b"")])
    files.put("run_7/a", b"3", at_ns=files.times[f"{ROOT}/run_7/DONE"] + 3_000_000_000)
    assert found(files, DIRECTORY) == []
    assert why(files, DIRECTORY) == "a is newer than DONE"


def test_the_number_in_its_place_is_the_step() -> None:
    names = [(f"step9-{step}-of-70b.npz", b"x") for step in (8, 10, 9)]
    assert [step for step, *_ in found(InMemory(names), "step9-{step}-of-70b.npz")] == [10, 9, 8]


def test_nothing_else_counts_and_without_a_pattern_all_that_are_known_do() -> None:
    manifest = json.dumps({"step": 40, "files": []}).encode()
    files = InMemory([("step-40/muster-checkpoint.json", manifest), ("state-9.npz", b"a")])
    assert found(files, FILE) == [(9, "state-9.npz", "Pattern")]
    assert found(files, "") == [(40, "step-40", "Manifest")]
    assert formats_by("") == FORMATS


NONE = [
    "state.npz",
    "{step}-{step}",
    "{step}/",
    "a/{step}",
    "{step}/a/b",
    "{Step}",
    "a{step}/..",
    "{step}/.",
    "a{step}\n",
]


@pytest.mark.parametrize("pattern", NONE)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"is neither like state-\{step\}\.npz nor like run_\{step\}/DONE"):
        own(pattern)


def test_another_directory_may_be_of_another_job(tmp_path: Path) -> None:
    own_place, other = tmp_path / "own", tmp_path / "other"
    (own_place / "run_3").mkdir(parents=True)
    (own_place / "run_3" / "DONE").touch()
    (other / "step-40").mkdir(parents=True)
    (other / "step-40" / "muster-checkpoint.json").write_text('{"step": 40, "files": []}')
    said: list[bytes] = []
    looks = ScanServer(str(own_place), said.append, lambda: False, pattern=DIRECTORY)
    request = {"scan": 1, "thorough": True, "judges": True, "stamps": False, "branch": None}
    request |= {"requested": "40", "requestedDirectory": str(other)}
    looks.hear([json.dumps(request).encode()])
    answer = json.loads(said[-1])
    assert [(one["step"], one["format"]) for one in answer["checkpoints"]] == [(3, "Pattern")]
    assert [(one["step"], one["format"]) for one in answer["elsewhere"]] == [(40, "Manifest")]


def test_on_a_nodes_own_disk_too(tmp_path: Path) -> None:
    assert list_local_shares(str(tmp_path), "gang", 1, "0/1x1", formats=formats_by(DIRECTORY)) == ([], "")
    (tmp_path / "run_3").mkdir()
    (tmp_path / "run_3" / "DONE").touch()
    there, _ = list_local_shares(str(tmp_path), "gang", 2, "0/1x1", formats=formats_by(DIRECTORY))
    assert [(one.step, one.attempt, one.format) for one in there] == [(3, 1, "Pattern")]


@pytest.mark.parametrize(
    ("mode", "said"), [("--scan", ""), ("--look-locally", '{"gang": "g", "attempt": 2, "share": "s"}')]
)
def test_the_launchers_children_go_by_what_the_operator_set(mode: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "run_3").mkdir()
    (tmp_path / "run_3" / "DONE").touch()
    (tmp_path / ".muster-g").write_text('{"eras": [[1, "s", 0]]}')
    answer = subprocess.run(
        [sys.executable, "-m", "muster.node.launcher", mode, str(tmp_path)],
        env={"PYTHONPATH": "operator", "MUSTER_CHECKPOINT_PATTERN": DIRECTORY},
        input=said,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "run_3" in answer.stdout.splitlines()[-1]
