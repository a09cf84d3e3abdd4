"""The launcher's child with real packages before a real S3 server: half-done uploads, throttling, credentials,
silence."""

from __future__ import annotations

import json
import os
import time
import uuid
from pathlib import Path

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.scanner import Scanner
from muster.protocol.messages import WAIT, Directive

DCP = Path(__file__).resolve().parents[3] / "unit" / "checkpoint" / "data" / "torch-2.6-step-40"
PART_BYTES = 5 * 1024 * 1024  # S3 takes none that are smaller, but the last


@pytest.fixture
def bucket(s3):
    name = f"b-{uuid.uuid4().hex[:12]}"
    s3("create_bucket", Bucket=name)
    return name


@pytest.fixture
def scanners(image):
    """Of URLs; at the end their children are killed."""
    made = []

    def make(url):
        made.append(Scans(Scanner(url, 2.0, 10.0)))
        return made[-1]

    yield make
    for scans in made:
        scans.stop()


class Scans:
    """A scanner whose clock goes on only when the test says so."""

    def __init__(self, scanner):
        self.scanner = scanner
        self.now = 100.0
        self.attempt = 0

    def again(self, thorough=False):
        """The next scan: its last word."""
        if thorough:
            self.attempt += 1
            self.scanner.scan_for(self.attempt)
        until = time.monotonic() + PATIENCE_SECONDS
        asked = self.scanner.scans
        while self.scanner.next_at() is None and time.monotonic() < until:  # a child is dying
            self.poll()
        if self.scanner.scans == asked:
            self.now = max(self.now, self.scanner.next_at())
        while time.monotonic() < until:
            result = self.poll()
            if result is not None and self.scanner.scans > asked and (result.done or result.error):
                return result
            time.sleep(0.005)
        raise AssertionError("the scan does not end")

    def poll(self):
        ended = {}
        for pid in self.scanner.pids:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended[found] = status
        return self.scanner.poll(self.now, ended)

    def stop(self):
        self.scanner.stop()
        for pid in self.scanner.pids:
            os.waitpid(pid, 0)


def put_manifest(s3, bucket, step, files):
    manifest = {"step": step, "files": [{"path": path, "bytes": size} for path, size in files.items()]}
    body = json.dumps(manifest).encode()
    s3("put_object", Bucket=bucket, Key=f"run-7/step-{step}/muster-checkpoint.json", Body=body)


def put_whole(s3, bucket, step):
    s3("put_object", Bucket=bucket, Key=f"run-7/step-{step}/model.bin", Body=b"x" * 10)
    put_manifest(s3, bucket, step, {"model.bin": 10})


def found(result):
    return [(one.step, one.path, one.format) for one in result.checkpoints if one.verified]


def test_what_torch_wrote_is_found_complete(s3, bucket, scanners):
    for file in sorted(DCP.iterdir(), key=lambda path: path.name == ".metadata"):
        s3("put_object", Bucket=bucket, Key=f"run-7/step-40/{file.name}", Body=file.read_bytes())
    put_whole(s3, bucket, 30)
    url = f"s3://{bucket}/run-7"
    result = scanners(url).again(thorough=True)
    assert found(result) == [(40, f"{url}/step-40", "TorchDCP"), (30, f"{url}/step-30", "Manifest")]
    assert (result.attempt, result.error) == (1, "")
    assert all(one.written_ns > 10**18 for one in result.checkpoints)


def test_an_upload_in_parts_counts_once_completed_and_writes_show_at_once(s3, bucket, scanners):
    put_whole(s3, bucket, 30)
    place = {"Bucket": bucket, "Key": "run-7/step-40/model.bin"}
    upload = s3("create_multipart_upload", **place)["UploadId"]
    tags = [
        s3("upload_part", **place, UploadId=upload, PartNumber=number, Body=("61", PART_BYTES))["ETag"]
        for number in (1, 2)
    ]
    put_manifest(s3, bucket, 40, {"model.bin": 2 * PART_BYTES})  # by somebody who does not wait for his uploads
    scans = scanners(f"s3://{bucket}/run-7")
    result = scans.again(thorough=True)
    assert [one[0] for one in found(result)] == [30]
    assert [(one.step, one.incomplete) for one in result.checkpoints if one.incomplete] == [(40, True)]
    parts = [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(tags, 1)]
    s3("complete_multipart_upload", **place, UploadId=upload, MultipartUpload={"Parts": parts})
    assert [one[0] for one in found(scans.again(thorough=True))] == [40, 30]
    s3("put_object", Bucket=bucket, Key="run-7/step-40/model.bin", Body=b"the next save begins")
    assert [one[0] for one in found(scans.again(thorough=True))] == [30]
    s3("delete_object", Bucket=bucket, Key="run-7/step-30/model.bin")
    put_whole(s3, bucket, 50)
    assert [one[0] for one in found(scans.again(thorough=True))] == [50]


def test_a_look_while_ranks_run_is_a_few_requests(s3, bucket, scanners, between):
    for step in range(1, 21):
        put_whole(s3, bucket, step)
    scans = scanners(f"s3://{bucket}/run-7")
    scans.again(thorough=True)
    scans.scanner.ranks_start()
    between.requests.clear()
    assert len(found(scans.again())) == 8
    assert len(between.requests) == 9  # the directory, and the newest eight


def test_throttling_is_told_as_what_passes_and_the_next_answer_counts(s3, bucket, scanners, between):
    put_whole(s3, bucket, 30)
    scans = scanners(f"s3://{bucket}/run-7")
    assert found(scans.again(thorough=True))
    between.answers = (503, "SlowDown")
    result = scans.again(thorough=True)
    assert (result.attempt, result.checkpoints) == (0, ())
    assert result.error.startswith(f"unverified for now: s3://{bucket}/run-7: the store is throttling (SlowDown")
    assert "(listed last at " in result.error
    assert scans.scanner.next_at() - scans.now == 20.0
    scans.again()
    assert scans.scanner.next_at() - scans.now == 40.0
    between.answers = None
    result = scans.again()
    assert ([one[0] for one in found(result)], result.error, result.attempt) == ([30], "", 2)


def test_a_server_that_says_nothing_is_given_up_by_the_child_itself(s3, bucket, scanners, between):
    put_whole(s3, bucket, 30)
    between.hangs.set()
    result = scanners(f"s3://{bucket}/run-7").again(thorough=True)
    assert result.error == f"unverified for now: s3://{bucket}/run-7: no answer within 20 s; it is asked again"


def test_a_child_that_gives_no_sign_is_killed_and_the_next_one_answers(s3, bucket, scanners, between):
    put_whole(s3, bucket, 30)
    scans = scanners(f"s3://{bucket}/run-7")
    scans.again(thorough=True)
    (first,) = scans.scanner.pids
    between.hangs.set()
    scans.scanner.scan_for(2)
    assert scans.poll() is None
    scans.now += 60.0
    result = scans.poll()
    assert result.error.startswith(
        f"unverified for now: no answer from s3://{bucket}/run-7 within 60 s: does the store answer?"
    )
    between.hangs.clear()
    result = scans.again()
    assert [one[0] for one in found(result)] == [30]
    assert first not in scans.scanner.pids


@pytest.mark.parametrize(
    ("changes", "answers", "word"),
    [
        ({"AWS_SECRET_ACCESS_KEY": "another"}, None, "SignatureDoesNotMatch"),
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, None, "NoCredentialsError"),
        # In words of AWS: this server has its own, and no tokens that expire.
        ({}, (400, "ExpiredToken"), "ExpiredToken"),
        ({}, (400, "InvalidToken"), "InvalidToken"),
        ({}, (403, "InvalidAccessKeyId"), "InvalidAccessKeyId"),
        ({}, (403, "AWordOfItsOwn"), "AWordOfItsOwn"),
        ({}, (403, "AccessDenied"), "AccessDenied"),
    ],
    ids=["a wrong secret", "no key", "expired", "no token", "nobody's key", "forbidden", "no rights"],
)
def test_credentials_are_told_as_what_people_have_to_mend(
    s3, bucket, scanners, between, monkeypatch, changes, answers, word
):
    put_whole(s3, bucket, 30)
    for name, value in changes.items():
        if value:
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name)
    between.answers = answers
    result = scanners(f"s3://{bucket}/run-7").again(thorough=True)
    assert (result.attempt, result.checkpoints) == (0, ())
    text = (
        f"unverified: s3://{bucket}/run-7: the store refuses the worker container's credentials, or there are none "
        f"({word}"
    )
    assert result.error.startswith(text)
    assert "Give it some that may list and read there" in result.error


def test_a_bucket_that_is_missing_holds_the_start_and_an_empty_one_does_not(s3, bucket, scanners):
    result = scanners(f"s3://{bucket}/run-7").again(thorough=True)
    assert (result.attempt, result.checkpoints, result.error) == (1, (), f"s3://{bucket}/run-7 does not exist")
    result = scanners(f"s3://{bucket}-typo/run-7").again(thorough=True)
    assert (result.attempt, "there is no bucket" in result.error) == (0, True)
    result = scanners("s3://b_/run-7").again(thorough=True)
    assert (
        result.attempt,
        result.error.startswith("unverified: s3://b_/run-7: the store says that it is addressed"),
    ) == (0, True)


def test_an_image_without_the_package_of_a_scheme(scanners):
    result = scanners("gs://bucket/run-7").again(thorough=True)
    assert result.error.startswith("unverified: gs://bucket/run-7: this image's Python (")
    assert "cannot open gs://" in result.error


def test_another_jobs_store_is_seen_by_one_that_saves_to_a_path(s3, bucket, scanners, tmp_path):
    for step in (20, 30):
        put_whole(s3, bucket, step)
    scans = scanners(str(tmp_path))
    scans.again(thorough=True)  # its child sees no packages
    for name, seen, error in (
        (bucket, [30, 20], ""),
        ("b-nobody-has", [], "unverified: s3://b-nobody-has/run-7: there is no bucket b-nobody-has"),
    ):
        directory = f"s3://{name}/run-7"
        scans.scanner.follow(Directive(WAIT, attempt=1, requested_resume="20", requested_directory=directory))
        result = scans.again(thorough=True)
        assert [(c.step, c.path, c.verified) for c in result.elsewhere] == [
            (n, f"{directory}/step-{n}", True) for n in seen
        ]
        assert result.elsewhere_error.startswith(error)
        assert bool(result.elsewhere_error) == bool(error)
        assert (result.error, result.attempt) == ("", scans.attempt)
