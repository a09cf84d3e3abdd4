"""What the kept releases have left behind is read by this version, and nothing of it is lost."""

import copy
import re

import pytest
from tests.unit.skew.next_version import UNKNOWN, VALUE

from apidocs.render import RESOURCES
from muster.api.fleethours import CONFIG_MAP
from muster.controller.history import NOTE
from skew.__main__ import main
from skew.kept import RELEASES, Release
from skew.read import MODELS, problems

NEWEST = RELEASES[-1]
SELDOM = {"RepairRequest"}  # no failure of the recorded life asks for a repair


@pytest.mark.parametrize("release", RELEASES, ids=lambda it: it.version)
def test_what_a_release_has_written_is_read_and_kept(release: Release) -> None:
    found = {_without_names(text) for text in problems(release.document())}
    assert found == {f"{field} is lost" for field in release.gone}


def _without_names(text: str) -> str:
    """`gangs: .spec.members[].index is lost`, whichever Gang and member it is."""
    return re.sub(r"\[\d+\]", "[]", re.sub(r"^(\w+) \S+: ", r"\1: ", text))


def test_the_newest_release_has_objects_of_each_kind() -> None:
    objects = NEWEST.document()["objects"]
    assert {model.__name__ for kind, model in MODELS.items() if objects[kind]} == {
        resource.model.__name__ for resource in RESOURCES
    } - SELDOM
    assert {CONFIG_MAP, NOTE} <= {found["metadata"]["name"] for found in objects["configmaps"]}
    (gang,) = objects["gangs"]
    assert {incident["level"] for incident in gang["spec"]["incidents"]} == {"R0", "R2"}
    assert gang["spec"]["unfencedWorkers"]


def test_a_field_that_is_not_kept_is_named() -> None:
    document = copy.deepcopy(NEWEST.document())
    document["objects"]["trainingjobs"][0]["status"][UNKNOWN] = VALUE
    document["objects"]["gangs"][0]["spec"]["level"] = "R7"
    document["messages"]["Report"][UNKNOWN] = VALUE
    assert [text.partition(": ")[2][:35] for text in problems(document)] == [
        f".status.{UNKNOWN} is lost",
        "unreadable: spec.level: Input shoul",
        f".{UNKNOWN} is lost",
    ]


@pytest.mark.parametrize(
    ("named", "answer"),
    [
        ("0" * 40, f"this clone has no commit {'0' * 40}: correct the hash, or git fetch --unshallow"),
        ("--all", "this clone has no commit --all: "),
        ("HEAD^{tree}", "this clone has no commit HEAD^{tree}: "),
        ("HEAD", "commit HEAD: give its full hash, "),
    ],
)
def test_a_release_is_kept_by_the_full_hash_of_a_commit(named: str, answer: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["9.9.9", "--", named])
    assert str(ended.value).startswith(answer)
