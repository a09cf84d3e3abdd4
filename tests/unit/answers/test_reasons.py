"""The table of reasons names each one that the operator can write and no other, and its messages are the code's."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from tests.unit.parsed import nodes, parse

import muster
from apidocs.messages import messages
from muster.answers.reasons import NEXT_BY_REASON, REASONS, Reason, Topic
from muster.api.nodehealth import VerdictState
from muster.api.trainingjob import CheckpointTrouble
from muster.controller.repairs import _TOLD as REPAIRS
from muster.recovery.failure import Kind

PACKAGE = Path(muster.__file__).parent
# The rooms that decide and write, and the names in the API; what runs on nodes and what only reads writes no reasons.
ROOMS = (
    *("api", "burnin", "checkpoints", "controller", "goodput", "health", "kube", "lifecycle", "placement", "pods"),
    *("queueing", "record", "recovery", "status"),
)
# Here each constant in the form of a reason is one, wherever it stands: in a call, a tuple, a name of its own.
STRICT = (
    "controller",
    "health/repairs.py",
    "lifecycle",
    "placement/reasons.py",
    "queueing",
    "recovery/budgets.py",
    "recovery/verification.py",
)
# Calls that take a reason of a job, a node or the FleetPolicy.
WRITERS = {
    "Announcement",
    "CreateError",
    "EmitEvent",
    "Mark",
    "Missing",
    "NotPlaced",
    "StatusReport",
    "_report_policy",
    "problem",
    "record",
    "record_policy_event",
}
WRITERS |= {"_completion", "_remember_refusal", "_report"}
REASON = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z0-9]*)*")
# Names of kinds, types of conditions, and what Kubernetes says, in the form of a reason.
NO_REASONS = {
    "AlreadyExists",
    "ClusterFirst",
    "ClusterFirstWithHostNet",
    "ConfigMap",
    "ContainerCreating",
    "EndedJob",
    "FallbackToLogsOnError",
    "FleetPolicy",
    "InProgress",
    "MaxText",
    "NoExecute",
    "NoSchedule",
    "NodeHealth",
    "NodeKind",
    "OneOfSeveral",
    "PodDisruptionBudget",
    "PodInitializing",
    "RepairRequest",
    "RuntimeDefault",
    "ScheduleAnyway",
    "TemplateAccepted",
    "TrainingJob",
    "Unreadable",  # what stands in a pod of which only the identity can be read
    # Arguments beside the reason: statuses of conditions, types of Events, kinds of objects, states.
    "False",
    "Node",
    "Normal",
    "Pending",
    "Recovering",
    "Running",
    "Saving",
    "Stalled",
    "Starting",
    "True",
    "Unknown",
    "Warning",
}


@cache
def sources() -> dict[str, str]:
    """The modules of the operator's rooms, by path in the package."""
    files = (path for room in ROOMS for path in sorted((PACKAGE / room).rglob("*.py")))
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in files}


@cache
def constants() -> dict[str, frozenset[str]]:
    """Values of the constants of all modules, by name."""
    found: dict[str, set[str]] = {}
    for node in chain.from_iterable(parse(source).body for source in sources().values()):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                found.setdefault(name, set()).add(value)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for target, each in zip(names, values, strict=False):
                    if isinstance(target, ast.Name) and isinstance(each, ast.Constant):
                        found.setdefault(target.id, set()).add(str(each.value))
    return {name: frozenset(values) for name, values in found.items()}


def values_of(node: ast.AST) -> Iterator[str]:
    """What an argument may be: a literal, a constant of any module by its name, either branch of a condition."""
    match node:
        case ast.Constant(value=str(value)):
            yield value
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield from constants().get(name, ())
        case ast.IfExp(body=body, orelse=orelse):
            yield from chain(values_of(body), values_of(orelse))


def given(source: str) -> Iterator[str]:
    """What calls that write conditions and Events are given, and conditions that are written as tuples."""
    for node in nodes(source):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in WRITERS:
                yield from chain.from_iterable(map(values_of, arguments))
            case ast.Tuple(elts=[ast.Constant(value=True | False | None), reason, _]):
                yield from values_of(reason)


def chosen(path: str, source: str) -> Iterator[str]:
    """What a field or an argument named `reason` is given, and what the job's status chooses between."""
    for node in nodes(source):
        match node:
            case ast.AnnAssign(target=ast.Name(id="reason"), value=ast.Constant() as default):
                yield from values_of(default)
            case ast.keyword(arg="reason", value=argument) if path.startswith("kube/"):
                yield from values_of(argument)
            case ast.IfExp() if path == "status/job_status.py":
                yield from values_of(node)


@cache
def written() -> set[str]:
    """Every reason that the operator can write."""
    found = {str(each) for each in (*Kind, *CheckpointTrouble)}
    found |= {f"Node{state}" for state in VerdictState} | {reason for _, reason in REPAIRS.values()}
    for path, source in sources().items():
        found.update(given(source), chosen(path, source))
        if path.startswith(STRICT):
            strings = (node.value for node in nodes(source) if isinstance(node, ast.Constant))
            found.update(each for each in strings if isinstance(each, str) and re.search("[a-z][A-Z]", each))
    return {each for each in found if REASON.fullmatch(each)} - NO_REASONS


NAMED = {name for each in REASONS for name in each.each}


def test_every_reason_that_the_operator_can_write_is_in_the_table() -> None:
    assert sorted(written() - NAMED) == [], "each needs an entry in answers/reasons.py; what is no reason, NO_REASONS"


def test_the_table_has_no_reason_that_is_gone() -> None:
    strings = {
        node.value
        for source in sources().values()
        for node in nodes(source)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert sorted(NAMED - written() - strings) == []


def test_reasons_are_found_wherever_they_stand() -> None:
    called, returned, constant = "EvacuationPlanned", "CreationForbidden", "BurnInInconclusive"
    one_word, condition, either, default = "Completed", "Settled", "Resumed", "InvalidSpec"
    assert {called, returned, constant, one_word, condition, either, default} <= written()


def test_a_reason_is_once_in_a_chapter() -> None:
    for topic in Topic:
        names = [name for each in REASONS if each.topic is topic for name in each.each]
        assert names
        assert sorted(names) == sorted(set(names)), topic


def test_every_failure_has_its_class_on_the_page() -> None:
    page = messages("").partition("## What was seen to fail\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"\w+", " ".join(re.findall(r"^### (.*)$", page, re.MULTILINE)))) == set(map(str, Kind))
    assert "### StepTimeout\n\n*TrainingJob: Event, status.incidents* · class Unknown; Hardware where" in page
    assert "### NodeUnhealthy\n\n*TrainingJob: Event, status.incidents* · class Hardware\n" in page


@cache
def texts() -> list[list[str]]:
    """The texts of the whole package, each without the values that are filled in."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "reasons.py":
            continue
        for node in nodes(path.read_text()):
            match node:
                case ast.JoinedStr(values=parts):
                    found.append([str(part.value) for part in parts if isinstance(part, ast.Constant)])
                case ast.Constant(value=str(value)):
                    found.append([value])
    return found


def is_of(example: str, parts: list[str]) -> bool:
    """Whether a text, in its order, is a good part of an example."""
    if sum(map(len, parts)) < min(20, len(example) // 3):
        return False
    position = 0
    for part in parts:
        position = example.find(part, position)
        if position < 0:
            return False
        position += len(part)
    return True


@pytest.mark.parametrize("reason", [each for each in REASONS if each.example], ids=lambda each: each.names[:40])
def test_examples_are_messages_of_the_code(reason: Reason) -> None:
    assert any(is_of(reason.example, parts) for parts in texts()), reason.example


@pytest.mark.parametrize("reason", REASONS, ids=lambda each: f"{each.topic.name}-{each.names[:40]}")
def test_each_reason_is_told_in_short_sentences_about_things(reason: Reason) -> None:
    for text in (reason.happened, reason.muster, reason.reader):
        assert text.endswith("."), text
        plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "X", text)
        assert not re.search(r"\b(?:who|whom|whoever|whose|he|his|him|somebody|nobody|everybody)\b", plain), text
        for sentence in re.split(r"(?<=[.!?:;])\s+", plain):
            assert len(sentence.split()) <= 25, sentence


def test_next_steps_are_those_of_the_table() -> None:
    assert set(NEXT_BY_REASON) <= NAMED
    assert NEXT_BY_REASON["QuotaExceeded"] == ("see the quota: {inside} describe resourcequota",)
