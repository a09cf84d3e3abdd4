"""Checkpoints in an object store: what is found there, what it costs, and what is said when nobody can see it."""

from __future__ import annotations

import errno
import json
import pickle
import random

import fsspec
import pytest
from tests.unit.checkpoint.objects import URL, Clock, Objects, finder_of, found, last, of_azure, of_gcs, of_s3
from tests.unit.checkpoint.recordings import InMemory, StorageInfo, complete, recorded
from tests.unit.checkpoint.saves import SAVES
from tests.unit.checkpoint.sweeps import assert_that_late_objects_are_not_complete_too_early

from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.listing import StorageError
from muster.node.checkpoint.store import SETTLE_SECONDS, Store
from muster.protocol.checkpoint_names import absolute, is_url, joined
from muster.protocol.checkpoints import ERROR_KINDS, UNVERIFIED, UNVERIFIED_FOR_NOW

LIGHT = ScanOptions(thorough=False)


def put_manifest(objects, step, parts=2, directory=None):
    place = f"run-7/{directory or f'step-{step}'}"
    for part in range(parts):
        objects.put(f"{place}/part-{part}", b"x" * 10)
    manifest = {"step": step, "files": [{"path": f"part-{n}", "bytes": 10} for n in range(parts)]}
    objects.put(f"{place}/muster-checkpoint.json", json.dumps(manifest).encode())


def metadata(shards):
    return pickle.dumps([StorageInfo(f"__{rank}_0.distcp", 0, 100) for rank in range(shards)], protocol=4)


def put_dcp(objects, step, shards=2):
    for rank in range(shards):
        objects.put(f"run-7/step-{step}/__{rank}_0.distcp", bytes(100))
    objects.put(f"run-7/step-{step}/.metadata", metadata(shards))


class TestNames:
    def test_urls_and_paths(self):
        urls = [
            "s3://b",
            "gs://b/x",
            "az://c/x",
            "abfs://c@account.dfs.core.windows.net/x",
            "file:///x",
            "hf+x.1-2://y",
        ]
        assert all(map(is_url, urls))
        assert not any(map(is_url, ["/ckpt", "/s3://b", "s3:/b", "s3://", "S3://b", "://b"]))

    def test_one_way_of_writing_each(self):
        assert [absolute(path) for path in ("s3://b/x//", "/ckpt/../x/")] == ["s3://b/x", "/x"]

    def test_beside_and_below(self):
        assert joined("s3://b/x/step-1", "../latest") == "s3://b/x/latest"
        assert joined("file:///x/step-1", "weights/metadata.json") == "file:///x/step-1/weights/metadata.json"
        assert joined("/x/step-1", "../latest") == "/x/latest"


class TestFormats:
    @pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
    def test_each_moment_of_a_save_is_judged_as_on_a_file_system(self, save):
        """Of an object that is being written nothing is there: so whole files one after the other."""
        for count in range(len(save.written) + 1):
            written = [*save.lasting, *save.written[:count]]
            objects = Objects()
            for path, content in written:
                objects.put(f"run-7/{path}", content)
            here = [(step, f"{URL}/{path}") for step, path in complete(InMemory(written))]
            assert found(finder_of(objects)) == here, written[-1:]

    def test_composers_shards_come_after_their_metadata_and_the_link_after_all(self):
        """composer/callbacks/checkpoint_saver.py: `.metadata` is uploaded first, and is small."""
        objects = Objects()
        for batch, link_at in ((500, 900), (600, 1900)):
            place = f"run-7/ep1-ba{batch}"
            objects.put(f"{place}/.metadata", metadata(2), seconds=link_at - 400)
            for rank in range(2):
                assert f"ep1-ba{batch}" not in str(found(finder_of(objects)))
                objects.put(f"{place}/__{rank}_0.distcp", bytes(100), seconds=link_at - 100 + rank)
            before = found(finder_of(objects))
            assert f"ep1-ba{batch}" not in str(before), "the link leads to an older one, or to none"
            objects.put("run-7/latest-rank0.pt.symlink", f"my/run-7/ep1-ba{batch}".encode(), seconds=link_at)
            assert found(finder_of(objects)) == [(batch, f"{URL}/ep1-ba{batch}"), *before]
        objects.put("run-7/ep1-ba600/__1_0.distcp", bytes(100), seconds=2500)
        assert found(finder_of(objects)) == [(500, f"{URL}/ep1-ba500")], "it is being saved anew"

    @pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
    def test_where_objects_are_shown_late_and_in_any_order_nothing_is_complete_too_early(self, save):
        assert_that_late_objects_are_not_complete_too_early(save, seeds=1)

    def test_files_deeper_than_a_listing_goes_are_told_by_their_directory(self):
        objects = Objects()
        objects.put("run-7/500/assets/user/set/more/norm_stats.json", b"{}")
        files = finder_of(objects)._files
        found = files.listing(f"{URL}/500", max_depth=3)
        assert (dict(found.files), found.deeper) == ({}, {"assets/user/set"})

    def test_orbax_is_complete_once_its_commit_file_is_there_as_the_last(self):
        written = recorded("orbax-0.12")
        ((step, name),) = complete(InMemory(written))
        commit = f"run-7/{name}/commit_success.txt"
        objects = Objects()
        for path, content in written:
            if f"run-7/{path}" != commit:
                objects.put(f"run-7/{path}", content)
        finder = finder_of(objects)

        def problem():
            assert found(finder) == []
            return next(iter(finder._verdicts.values())).problem

        assert "no directory is renamed at once" in problem()
        objects.put(commit, b"", seconds=-60)  # copied before the others
        assert "is newer than commit_success.txt" in problem()
        objects.put(commit, b"")
        objects.put(f"run-7/{name}.orbax-checkpoint-tmp/_METADATA", b"")
        assert "orbax-checkpoint-tmp is still there" in problem()
        del objects.infos[f"bucket/run-7/{name}.orbax-checkpoint-tmp/_METADATA"]
        assert found(finder) == [(step, f"{URL}/{name}")]

    @pytest.mark.parametrize("describe", [of_s3, of_gcs, of_azure])
    def test_what_packages_tell_of_times_and_versions(self, describe):
        objects = Objects(describe)
        put_dcp(objects, 40)
        finder = finder_of(objects)
        (newest,) = last(finder).checkpoints
        assert newest.written_ns == 1_795_348_800_300_000_000
        first = finder._verdicts[newest.path].files
        info = objects.infos["bucket/run-7/step-40/.metadata"]
        written = next(info[key] for key in ("LastModified", "mtime", "last_modified") if key in info)
        objects.infos["bucket/run-7/step-40/.metadata"] = describe(info["name"], metadata(2), written, 99)
        last(finder)
        assert finder._verdicts[newest.path].files != first

    def test_what_the_memory_file_system_of_fsspec_holds(self):
        files = fsspec.filesystem("memory")
        files.pipe("/store-test/step-3/a", b"12345")
        manifest = {"step": 3, "files": [{"path": "a", "bytes": 5}]}
        files.pipe("/store-test/step-3/muster-checkpoint.json", json.dumps(manifest).encode())
        url = "memory://store-test"
        try:
            assert [one.path for one in Finder(url, files=Store(url)).find()] == [f"{url}/step-3"]
        finally:
            files.rm("/store-test", recursive=True)


class TestChanges:
    def test_a_save_over_a_checkpoint_is_seen_by_its_times(self):
        objects = Objects()
        put_dcp(objects, 40)
        finder = finder_of(objects)
        assert found(finder) == [(40, f"{URL}/step-40")]
        objects.put("run-7/step-40/__0_0.distcp", bytes(100), seconds=60)
        assert found(finder, LIGHT) == []

    def test_within_one_second_by_the_version(self):
        objects = Objects()
        put_manifest(objects, 40)
        finder = finder_of(objects)
        assert found(finder) == [(40, f"{URL}/step-40")]
        info = objects.infos["bucket/run-7/step-40/muster-checkpoint.json"]
        content = objects.contents[info["name"]].replace(b'"bytes": 10', b'"bytes": 11')
        objects.contents[info["name"]] = content
        objects.infos[info["name"]] = of_s3(info["name"], content, info["LastModified"], 99)
        assert found(finder, LIGHT) == []

    def test_a_save_without_marker_settles_longer_than_on_a_file_system(self):
        """It counts after two scans that far apart."""
        save = SAVES["DeepSpeed, ZeRO 2, two ranks"]
        objects, clock = Objects(), Clock()
        for path, content in save.written:
            objects.put(f"run-7/{path}", content)
        finder = finder_of(objects, clock=clock)
        assert found(finder, LIGHT) == []
        clock.now = SETTLE_SECONDS - 1
        assert found(finder, LIGHT) == []
        clock.now = SETTLE_SECONDS + 3
        assert found(finder, LIGHT) == [(1, f"{URL}/global_step1")]

    def test_composers_object_that_stands_for_a_link(self):
        objects = Objects()
        objects.put("run-7/latest-rank0.pt.symlink", b"run-7/ep1-ba400-rank0.pt")
        store = Store(URL, objects.opened)
        assert store.link(f"{URL}/latest-rank0.pt") == "run-7/ep1-ba400-rank0.pt"
        assert store.link(f"{URL}/other") is None


class TestStrangeThings:
    def test_markers_of_directories_and_empty_components(self):
        objects = Objects()
        put_manifest(objects, 40)
        for name in ("run-7/", "run-7/step-40/", "run-7//step-50/muster-checkpoint.json", "run-7/step-40//x"):
            objects.put(name, b"")
        assert found(finder_of(objects)) == [(40, f"{URL}/step-40")]

    def test_the_directory_may_be_the_bucket(self):
        objects = Objects()
        objects.put("step-4/muster-checkpoint.json", b'{"step": 4, "files": []}')
        assert found(finder_of(objects, "s3://bucket/")) == [(4, "s3://bucket/step-4")]

    def test_a_directory_that_is_a_checkpoint_itself(self):
        objects = Objects()
        put_dcp(objects, 40)
        assert found(finder_of(objects, f"{URL}/step-40")) == [(40, f"{URL}/step-40")]

    def test_nothing_outside_is_looked_at(self):
        objects = Objects()
        objects.put("latest", b"1")
        store = Store(URL, objects.opened)
        assert store.status("s3://bucket/latest") is None
        with pytest.raises(FileNotFoundError):
            store.content("s3://bucket/latest")
        assert objects.asked == []

    def test_parts_beyond_the_end(self):
        objects = Objects()
        objects.put("run-7/a", b"0123456789")
        objects.put("run-7/empty", b"")
        store = Store(URL, objects.opened)
        parts = [store.part(f"{URL}/a", start, length) for start, length in ((0, 4), (8, 8), (10, 1), (99, 1))]
        assert parts == [b"0123", b"89", b"", b""]
        assert store.content(f"{URL}/empty") == b""
        assert store.content(f"{URL}/a") == b"0123456789"

    @pytest.mark.parametrize("seed", range(5))
    def test_any_names_are_survived_and_nothing_torn_is_called_complete(self, seed):
        """Names as nobody means them, beside one save of which any objects may be missing or cut short."""
        chance = random.Random(seed)
        pieces = [
            "step-5",
            "checkpoint_7",
            "..",
            ".",
            "",
            " ",
            "\u4e2d",
            "latest",
            ".metadata",
            "a\nb",
            "%2F",
            "5",
            "iter_0000500",
        ]
        for _ in range(40):
            objects = Objects()
            put_dcp(objects, 40)
            incomplete = chance.choice([name for name in objects.infos if "step-40" in name])
            whole = chance.random() < 0.5
            if not whole:
                content, keeps = objects.contents.pop(incomplete), chance.random() < 0.5
                del objects.infos[incomplete]
                if keeps:
                    objects.put(incomplete.partition("/")[2], content[: chance.randrange(len(content))], seconds=0)
            for _ in range(chance.randrange(12)):
                name = "/".join(chance.choices(pieces, k=chance.randrange(1, 5)))
                if not name.startswith("step-40"):
                    objects.put(f"run-7/{name}", bytes(chance.randrange(3)))
            assert found(finder_of(objects)) == ([(40, f"{URL}/step-40")] if whole else []), sorted(objects.infos)


class TestCosts:
    def test_a_look_asks_once_for_each_directory(self):
        objects = Objects()
        for step in range(1, 31):
            put_dcp(objects, step, shards=20)
        finder = finder_of(objects)
        last(finder)
        objects.asked.clear()
        last(finder, LIGHT)
        assert objects.asked[0] == ("ls", "bucket/run-7")
        assert len(objects.asked) == len(set(objects.asked)) == 9  # of the newest eight

    def test_many_objects_beside_are_not_listed(self):
        objects = Objects()
        put_dcp(objects, 40)
        for number in range(1000):
            objects.put(f"run-7/logs/deep/{number}", b"")
        last(finder_of(objects))
        assert ("find", "bucket/run-7/logs") not in objects.asked
        assert ("ls", "bucket/run-7/logs/deep") not in objects.asked

    def test_what_takes_too_long_beside_is_left_out_for_a_while(self):
        objects, clock = Objects(), Clock()
        put_dcp(objects, 40)
        objects.put("run-7/logs/0", b"")

        def fails(_method, path):
            if path.endswith("logs"):
                raise TimeoutError

        objects.fails = fails
        finder = finder_of(objects, clock=clock)
        for moment, times in ((0.0, 1), (590.0, 1), (610.0, 2)):
            clock.now = moment
            assert found(finder, LIGHT) == [(40, f"{URL}/step-40")]
            assert objects.asked.count(("ls", "bucket/run-7/logs")) == times


def client_error(code, kind=PermissionError, status=400):
    """As s3fs raises what S3 answers."""
    error = kind(errno.EIO, "An error of the store")
    error.__cause__ = Exception(code)
    error.__cause__.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return error


class NoCredentialsError(Exception):
    """botocore's is no OSError either."""


class TestFailures:
    @pytest.mark.parametrize(
        ("error", "kind", "words"),
        [
            (
                client_error("ExpiredToken"),
                UNVERIFIED,
                "refuses the worker container's credentials, or there are none (Expired",
            ),
            (client_error("AccessDenied"), UNVERIFIED, "may list and read there"),
            (client_error("InvalidAccessKeyId"), UNVERIFIED, "InvalidAccessKeyId"),
            (client_error("AWordOfItsOwn", OSError, status=403), UNVERIFIED, "AWordOfItsOwn"),
            (client_error("AWordOfItsOwn", OSError, status=500), UNVERIFIED_FOR_NOW, "AWordOfItsOwn"),
            (client_error("InvalidBucketName", OSError), UNVERIFIED, "Correct the name in spec.checkpoint"),
            (NoCredentialsError("Unable to locate credentials"), UNVERIFIED, "Unable to locate credentials"),
            (client_error("SlowDown", OSError), UNVERIFIED_FOR_NOW, "the store is throttling (SlowDown"),
            (OSError(errno.EBUSY, "Please reduce your request rate."), UNVERIFIED_FOR_NOW, "throttling"),
            (TimeoutError(), UNVERIFIED_FOR_NOW, "no answer within 20 s"),
            (
                OSError(errno.EIO, "a broken pipe"),
                UNVERIFIED_FOR_NOW,
                "cannot be listed or read (OSError: [Errno 5] a bro",
            ),
            (RuntimeError("anything"), UNVERIFIED_FOR_NOW, "RuntimeError: anything"),
        ],
    )
    @pytest.mark.parametrize("method", ["ls", "find", "cat_file"])
    def test_no_failure_is_taken_for_an_empty_store_or_a_torn_checkpoint(self, error, kind, words, method):
        objects = Objects()
        put_dcp(objects, 40)

        def fails(asked, _path):
            if asked == method:
                raise error

        objects.fails = fails
        with pytest.raises(StorageError) as raised:
            last(finder_of(objects))
        text = str(raised.value)
        assert raised.value.kind == kind
        assert text.startswith(ERROR_KINDS[kind] % f"{URL}: ")
        assert words in text

    def test_an_image_without_fsspec(self):
        def without(_url):
            raise ModuleNotFoundError("No module named 'fsspec'", name="fsspec")

        with pytest.raises(
            StorageError, match=r"unverified: .* has no fsspec\. Install fsspec and its package"
        ) as raised:
            last(Finder(URL, files=Store(URL, without)))
        assert "or name no URL in spec.checkpoint" in str(raised.value)

    def test_a_scheme_whose_package_is_missing_and_one_that_nobody_knows(self):
        for url, words in (
            ("gs://bucket/x", "cannot open gs:// (ImportError: Please install gcsfs"),
            (
                "wibble://bucket/x",
                "fsspec in this image knows no scheme wibble://. Correct it in spec.checkpoint",
            ),
        ):
            with pytest.raises(StorageError) as raised:
                last(Finder(url, files=Store(url)))
            assert words in str(raised.value)
            assert raised.value.kind == UNVERIFIED

    def test_a_bucket_that_does_not_exist_is_no_empty_directory(self):
        objects = Objects()
        assert "does not exist" in last(finder_of(objects)).note
        objects.bucket = "another"
        with pytest.raises(StorageError, match=r"there is no bucket bucket\. Make it, or correct its name"):
            last(finder_of(objects))

    def test_a_bucket_that_may_not_be_listed_as_a_whole_may_be_there(self):
        objects = Objects()

        def fails(_method, path):
            if path == "bucket":
                raise PermissionError(path)

        objects.fails = fails
        assert last(finder_of(objects)).note == f"{URL} does not exist"

    def test_an_object_that_vanishes_while_it_is_read_is_no_failure_of_the_store(self):
        objects = Objects()
        put_dcp(objects, 30)
        put_dcp(objects, 40)

        def fails(method, path):
            if method == "cat_file" and "step-40" in path:
                raise FileNotFoundError(path)

        objects.fails = fails
        assert found(finder_of(objects)) == [(30, f"{URL}/step-30")]
