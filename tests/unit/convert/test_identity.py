"""Variables that Muster sets, and that had another form in the other system or are set by a script."""

from typing import Any

import pytest
from tests.unit.convert.builders import a_job_set, a_pytorch_job, job_of, only, trainer

from muster.convert.documents import Result

HOST = "ds-workload-0-0.ds"


def converted(script: str = "exec /launch.sh", *others: dict[str, Any], **env: str) -> Result:
    """A JobSet of four pods with a script and variables."""
    variables = [{"name": name, "value": value} for name, value in env.items()]
    return only(a_job_set(["bash", "-c", script], env=[*variables, *others]))


def forms(found: Result) -> list[str]:
    return [note for note in found.notes.check if ": it was " in note]


def script_of(found: Result) -> str:
    return str(trainer(job_of(found))["command"][2])


@pytest.mark.parametrize(
    ("name", "value", "before", "now"),
    [
        ("JAX_COORDINATOR_ADDRESS", HOST, "a host without a port", "ADDRESS:PORT"),
        ("MASTER_ADDR", f"{HOST}:29500", "an address with a port", "the address alone"),
        ("PET_MASTER_ADDR", f"{HOST}:$(MASTER_PORT)", "an address with a port", "the address alone"),
        ("JAX_COORDINATOR_IP", f"tcp://{HOST}:1", "an address with a port", "the address alone"),
        ("MASTER_PORT", "rendezvous", "no number", "a number"),
        ("NNODES", "32", "another number than that of the pods, 4", "4, the number of nodes"),
    ],
)
def test_a_form_that_changes_is_told_with_both_forms(name: str, value: str, before: str, now: str) -> None:
    (told,) = forms(converted(**{name: value}))
    assert told.startswith(f"env {name}: {value}: it was {before}, and is {now}")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_COORDINATOR_ADDRESS", f"{HOST}:6002"),
        ("JAX_COORDINATOR_ADDRESS", f"{HOST}:$(JAX_COORDINATOR_PORT)"),
        ("JAX_COORDINATOR_ADDRESS", "$(WHERE)"),  # which has a port
        ("MASTER_ADDR", HOST),
        ("MASTER_PORT", "29500"),
        ("MASTER_PORT", "$(PORT)"),
        ("NNODES", "4"),
    ],
)
def test_a_form_that_stays_is_not_told(name: str, value: str) -> None:
    assert forms(converted(WHERE=f"{HOST}:6002", **{name: value})) == []


def test_a_rank_that_was_the_name_of_a_pod_is_told() -> None:
    source = {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    (told,) = forms(converted("exec /launch.sh", source))
    assert "it was the name of a pod, and is a number, from 0" in told


def test_references_get_the_form_that_they_had() -> None:
    found = converted('wait-for "$JAX_COORDINATOR_ADDRESS"', JAX_COORDINATOR_ADDRESS=HOST)
    assert script_of(found) == 'wait-for "${MASTER_ADDR}"'
    found = converted("run ${MASTER_ADDR}", MASTER_ADDR=f"tcp://{HOST}:1", STORE="$(MASTER_ADDR)")
    assert script_of(found) == "run tcp://${MASTER_ADDR}:${MASTER_PORT}"
    assert trainer(job_of(found))["env"] == [{"name": "STORE", "value": "tcp://$(MASTER_ADDR):$(MASTER_PORT)"}]
    for script in ("run $MASTER_ADDR", "run $$(MASTER_ADDR)", "export MASTER_ADDR=x:1; run $MASTER_ADDR"):
        value = HOST if script == "run $MASTER_ADDR" else f"{HOST}:1"
        assert script_of(converted(script, MASTER_ADDR=value)) == script


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("export JAX_COORDINATOR_IP=$(getent hosts $FIRST | cut -d' ' -f1)\nrun", "JAX_COORDINATOR_IP=$(getent"),
        ("if [ $NODE_RANK = 0 ]; then MASTER_ADDR=localhost; fi; run", "MASTER_ADDR=localhost"),
        ("A=1 MASTER_ADDR=$POD_IP run", "MASTER_ADDR=$POD_IP"),
        ("until nslookup $MASTER_ADDR; do sleep 1; done; run", "nslookup $MASTER_ADDR:"),
        ("HEAD=$(getent hosts ${FIRST} | head -1); run", "getent hosts ${FIRST}:"),
    ],
)
def test_what_a_script_makes_of_an_address_is_told_once(script: str, told: str) -> None:
    checks = converted(script, FIRST=HOST).notes.check
    found = [note for note in checks if "in the place of Muster" in note or "may find nothing" in note]
    assert [note.startswith(told) for note in found] == [True]


@pytest.mark.parametrize(
    "script",
    [
        "export MASTER_ADDR=${MASTER_ADDR:-localhost}; run",
        f"export MASTER_ADDR={HOST}.lab.svc; run",
        "MASTER_ADDR=$FIRST run",
        "export JAX_COORDINATOR_ADDRESS=$MASTER_ADDR:$MASTER_PORT\nrun",
        'echo "MASTER_ADDR=$POD_IP, and so on"; run --master_addr=$MASTER_ADDR',
        "# export MASTER_ADDR=localhost\nrun",
        "getent ahosts $MASTER_ADDR; run",
        "nslookup example.org; run $MASTER_ADDR",
    ],
)
def test_a_script_that_takes_the_address_over_is_not_told(script: str) -> None:
    checks = converted(script, FIRST=HOST).notes.check
    assert not [note for note in checks if "in the place of Muster" in note or "may find nothing" in note]


@pytest.mark.parametrize(
    ("script", "name", "value", "told"),
    [
        ("run", "WORLD_SIZE", "32", "WORLD_SIZE=4:"),
        ("run", "WORLD_SIZE", "2", "WORLD_SIZE=4:"),
        ("run", "LOCAL_WORLD_SIZE", "8", "LOCAL_WORLD_SIZE=1:"),
        ("torchrun --nnodes=$((WORLD_SIZE / 8)) t.py", "WORLD_SIZE", "32", "WORLD_SIZE=4:"),
        ("WORLD_SIZE=32 run-all; torchrun t.py", "WORLD_SIZE", "32", ""),
        ("torchrun t.py", "WORLD_SIZE", "32", ""),
        ("run", "WORLD_SIZE", "4", ""),
    ],
)
def test_a_count_of_processes_is_told_where_it_is_read(script: str, name: str, value: str, told: str) -> None:
    found = [note for note in converted(script, **{name: value}).notes.check if f"tells it {name}=" in note]
    assert [told in note for note in found] == [True] * bool(told)


def test_the_count_that_the_training_operator_sets_is_told_where_it_is_read() -> None:
    for script, is_told in (("torchrun --nnodes=$(($WORLD_SIZE/8)) t.py", True), ("python3 t.py", False)):
        source = a_pytorch_job(["bash", "-c", script])
        source["spec"]["nprocPerNode"] = "8"
        replicas = source["spec"]["pytorchReplicaSpecs"]
        replicas["Master"] = {**replicas["Worker"], "replicas": 1}
        assert any("env WORLD_SIZE: 24: " in note for note in only(source).notes.check) is is_told
