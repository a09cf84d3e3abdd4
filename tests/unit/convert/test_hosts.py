"""Host names of the other system: what becomes of the first pod's, and which pieces of names are reported."""

from typing import Any

import pytest
from tests.unit.convert.builders import a_job_set, job_of, only, trainer

from muster.convert.documents import Result
from muster.convert.hosts import HostNames


def converted(script: str = "exec /launch.sh", **env: str) -> Result:
    """A JobSet `ds` of four pods, whose replicated Job is called `workload`."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return only(a_job_set(["bash", "-c", script], env=variables))


def pieces(found: Result) -> list[str]:
    """What the check of pieces names."""
    end = ": of this host names are made"
    return [piece for note in found.notes.check if end in note for piece in note.partition(end)[0].split(", ")]


@pytest.mark.parametrize(
    "value", ["ds-workload-", "ds-workload", "ds-workload-0-", "ds-", "ds.lab.svc.cluster.local", ".ds"]
)
def test_a_variable_with_a_piece_of_a_host_name_is_told(value: str) -> None:
    assert pieces(converted(PART=value)) == [f"env PART: {value}"]


@pytest.mark.parametrize(
    "value", ["ds", "workload", "ds-workload-0-1.ds", "ads-workload-", "ds2.lab.svc", "s3://ds-/x", "ds.yaml"]
)
def test_a_value_that_is_no_piece_is_not_told(value: str) -> None:
    assert pieces(converted(PART=value)) == []


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("for i in 1 2; do ssh ${NAME}-workload-0-$i.${SET}; done", ["env NAME: ds"]),
        ("ssh $(NAME)-$(KIND)-0-$i", ["env NAME: ds", "env KIND: workload"]),
        ("python -c \"print([f'ds-workload-0-{i}.ds' for i in range(4)])\"", ["ds-workload-0-"]),
        ("ssh $(hostname).ds.lab.svc", [".ds.lab.svc"]),
        ('echo "$NAME: $KIND" > /logs/$NAME-$(date +%s)', []),
        ("ssh $$(NAME)-workload-0-$i", []),
    ],
)
def test_a_script_that_makes_host_names_is_told_by_what_it_makes_them_of(script: str, told: list[str]) -> None:
    assert pieces(converted(script, NAME="ds", KIND="workload")) == told


def test_a_name_that_is_put_together_is_replaced_where_it_is_the_first() -> None:
    marks = {"JOBSET_NAME": "jobset-name", "REPLICATED_JOB_NAME": "replicatedjob-name"}
    env: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['jobset.sigs.k8s.io/{mark}']"}}}
        for name, mark in marks.items()
    ]
    env.append({"name": "STORE", "value": "tcp://$(JOBSET_NAME)-$(REPLICATED_JOB_NAME)-0-0.$(JOBSET_NAME):7000"})
    found = only(a_job_set(["bash", "-c", "exec /launch.sh"], env=env))
    values = {each["name"]: each["value"] for each in trainer(job_of(found))["env"]}
    assert values == {"JOBSET_NAME": "ds", "REPLICATED_JOB_NAME": "workload", "STORE": "tcp://$(MASTER_ADDR):7000"}
    assert pieces(found) == []
    assert not [note for note in found.notes.check if "JOBSET_NAME" in note or "jobset-name" in note]


def test_a_variable_that_the_manifest_sets_itself_is_not_missed() -> None:
    script = "echo $JOBSET_NAME of try $JOBSET_RESTART_ATTEMPT"
    told = [note.partition(" ")[0] for note in converted(script, JOBSET_NAME="ds").notes.check if " is used, " in note]
    assert told == ["JOBSET_RESTART_ATTEMPT"]


def test_the_name_of_an_indexed_job_is_a_piece_only_with_its_service() -> None:
    names = HostNames("mt", domain="peers")
    assert [names.is_piece(each) for each in ("mt-", "peers", "peers.lab.svc", "mt", "mt-0", "mt-1-")] == [
        *[True] * 3,
        *[False] * 2,
        True,
    ]
    assert (names.first, HostNames("a", ("master", "worker")).first) == ("mt-0", "a-master-0")
