"""What nobody should be able to ask for is refused by the API server, with the field's path and what to do instead.

There is at least one case for each field and for each rule of what users write; two tests see to it that a new field or
rule comes with a case of its own. What only the operator writes is checked field by field with values of a wrong type.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from apidocs import render
from muster.api.trainingjob import MAX_SAVES

TIME = "2026-01-31T12:00:00.000000Z"
RESOURCES = {resource.kind: resource for resource in render.RESOURCES}

MISSING = "Required value"
SUPPORTED = "supported values: "


@dataclass(frozen=True)
class Case:
    """A change to the smallest valid manifest, and what kubectl has to say about it."""

    field: str
    changes: Mapping[str, Any]
    says: tuple[str, ...]


def one(path: str, value: Any, *says: str, field: str | None = None) -> Case:
    """A bad value at one path; the answer names the path."""
    return Case(field or path, {path: value}, (path, *says))


def bounds(path: str, low: int, high: int) -> Iterator[tuple[str, Case]]:
    """The two values just outside."""
    yield f"{path} below its least", one(path, low - 1, f"should be greater than or equal to {low}")
    yield f"{path} above its most", one(path, high + 1, f"should be less than or equal to {high}")


def preflight_limit(name: str, limit: Any, says: str) -> Case:
    """A bad limit of the burn-in's."""
    path = "spec.preflight.limits"
    where = f".{name}" if name else ""
    return Case(f"{path}[]{where}" if name else path, {path: [limit]}, (f"{path}[0]{where}", says))


def budget(name: str, entry: Any, says: str) -> Case:
    """A bad budget of the breaker."""
    path = "spec.health.budgets"
    return Case(f"{path}[].{name}", {path: [entry]}, (f"{path}[0].{name}", says))


def pool_health(field: str, health: Any, *says: str) -> Case:
    """A bad part of a pool's health; `field` is its path within health, "" for health itself."""
    path = f"health{field}"
    changes = {"spec.pools": [{"name": "a", "health": health}]}
    return Case(f"spec.pools[].{path}", changes, (f"spec.pools[0].{path}".replace("[].", "[0]."), *says))


def plain(path: str, value: Any) -> tuple[str, Case]:
    """A field that needs the launcher, in a mode without it."""
    name = path.rpartition(".")[2]
    words = (
        f"{name} needs Muster's launcher, which mode Plain does not use: leave it out, or set launch.mode to Managed"
    )
    return f"{path} in mode Plain", Case(path, {"spec.launch.mode": "Plain", path: value}, (path, words))


CONTAINER = "spec.template.spec.containers[0]"
CONTAINERS = "spec.template.spec.containers"
LEVEL_NAME = "write the short name of a topology level, by default block or rack"

# REMOVED stands for "take the field away"; the fixture `without` is the value itself.
REMOVED = "take the field away"

JOBS: dict[str, Case] = {
    "name too long for pod names": one("metadata.name", "a" * 41, "longer than 40 characters", "choose a shorter one"),
    "name with a dot": one("metadata.name", "my.job", "use lower-case letters, digits and '-'"),
    "name that begins with a digit": one("metadata.name", "9lives", "begin with a letter"),
    "no spec": one("spec", REMOVED, MISSING),
    "a misspelt field": one("spec.gpuPerNode", 4, 'unknown field "spec.gpuPerNode"', field="spec"),
    "a misspelt field deeper down": one(
        "spec.launch.modus", "Plain", 'unknown field "spec.launch.modus"', field="spec.launch"
    ),
    "no nodes": one("spec.nodes", REMOVED, MISSING),
    "nodes in words": one("spec.nodes", "two", "must be of type integer"),
    **dict(bounds("spec.nodes", 1, 4096)),
    **dict(bounds("spec.gpusPerNode", 0, 64)),
    "no template": one("spec.template", REMOVED, MISSING),
    "template that is text": one("spec.template", "pod", "must be of type object"),
    "template metadata that is text": one("spec.template.metadata", "labels", "must be of type object"),
    "no pod spec": one("spec.template.spec", REMOVED, MISSING),
    "no containers": one(CONTAINERS, REMOVED, MISSING),
    "an empty list of containers": one(CONTAINERS, [], "should have at least 1 items"),
    "too many containers": one(
        CONTAINERS, [{"name": f"c{index}", "image": "i"} for index in range(33)], "must have at most 32 items"
    ),
    "two containers of one name": one(
        CONTAINERS, [{"name": "a", "image": "i"}, {"name": "a", "image": "j"}], "[1]: Duplicate value"
    ),
    "a container without a name": one(f"{CONTAINER}.name", REMOVED, MISSING, field=f"{CONTAINERS}[].name"),
    "a container with an empty name": one(
        f"{CONTAINER}.name", "", "should be at least 1 chars long", field=f"{CONTAINERS}[].name"
    ),
    "a container with a long name": one(
        f"{CONTAINER}.name", "a" * 64, "may not be more than 63", field=f"{CONTAINERS}[].name"
    ),
    "a container without an image": one(f"{CONTAINER}.image", REMOVED, MISSING, field=f"{CONTAINERS}[].image"),
    "a container with an empty image": one(
        f"{CONTAINER}.image", "", "should be at least 1 chars long", field=f"{CONTAINERS}[].image"
    ),
    "a command as one string": one(
        f"{CONTAINER}.command", "python3 train.py", "must be of type array", field=f"{CONTAINERS}[].command"
    ),
    "arguments that are numbers": one(f"{CONTAINER}.args", [1], "must be of type string", field=f"{CONTAINERS}[].args"),
    "a restart policy": one("spec.template.spec.restartPolicy", "OnFailure", f'{SUPPORTED}"Never"'),
    "launch that is text": one("spec.launch", "Managed", "must be of type object"),
    "mode in lower case": one("spec.launch.mode", "managed", f'{SUPPORTED}"Managed", "Plain"'),
    **dict(bounds("spec.launch.processesPerNode", 1, 64)),
    "several processes in mode Plain": Case(
        "spec.launch.processesPerNode",
        {"spec.launch": {"mode": "Plain", "processesPerNode": 2}},
        ("spec.launch.processesPerNode", "leave processesPerNode out, or set mode to Managed"),
    ),
    "a worker container that does not exist": one(
        "spec.launch.workerContainer", "training", "write the name of one of spec.template.spec.containers"
    ),
    "an empty worker container": one("spec.launch.workerContainer", "", "should be at least 1 chars long"),
    "placement that is text": one("spec.placement", "rack", "must be of type object"),
    "a label where a level is required": one("spec.placement.required", "topology.muster.dev/rack", LEVEL_NAME),
    "a long name of a required level": one("spec.placement.required", "r" * 64, "may not be more than 63"),
    "a label where a level is preferred": one("spec.placement.preferred", "Rack", LEVEL_NAME),
    "nodes to avoid as one string": one("spec.placement.avoidNodes", "node-1", "must be of type array"),
    "a node to avoid that is no name": Case(
        "spec.placement.avoidNodes",
        {"spec.placement.avoidNodes": ["node-1", "node_2"]},
        ("spec.placement.avoidNodes[1]", "write the name of a node as `kubectl get nodes` shows it"),
    ),
    "a node to avoid twice": Case(
        "spec.placement.avoidNodes",
        {"spec.placement.avoidNodes": ["node-1", "node-1"]},
        ("spec.placement.avoidNodes[1]: Duplicate value", "node-1"),
    ),
    "too many nodes to avoid": one(
        "spec.placement.avoidNodes", [f"n{index}" for index in range(257)], "must have at most 256 items"
    ),
    **dict(bounds("spec.placement.segmentSize", 1, 4096)),
    "segments that do not divide the gang": Case(
        "spec.placement.segmentSize",
        {"spec.nodes": 10, "spec.placement.segmentSize": 4},
        ("spec.placement.segmentSize", "does not divide spec.nodes: choose a size of which spec.nodes is a multiple"),
    ),
    "checkpoint that is text": one("spec.checkpoint", "/checkpoints", "must be of type object"),
    "a relative checkpoint directory": one(
        "spec.checkpoint.directory",
        "checkpoints",
        "write an absolute path, e.g. /checkpoints, or a URL, e.g. s3://bucket/run-7",
    ),
    "a URL without a bucket": one("spec.checkpoint.directory", "s3://", "or a URL, e.g. s3://bucket/run-7"),
    "a URL within a URL": one("spec.checkpoint.directory", "zip::s3://b/x", "or a URL, e.g. s3://bucket/run-7"),
    "a local directory in a store": one(
        "spec.checkpoint.localDirectory", "s3://b/x", "write an absolute path, e.g. /local/checkpoints"
    ),
    "a long checkpoint directory": one("spec.checkpoint.directory", "/" + "a" * 1024, "may not be more than 1024"),
    **dict([plain("spec.checkpoint.directory", "/checkpoints")]),
    **dict(bounds("spec.checkpoint.saveTimeoutSeconds", 0, 86400)),
    "a relative local directory": one(
        "spec.checkpoint.localDirectory", "local", "write an absolute path, e.g. /local/checkpoints"
    ),
    "a local directory within the shared one": Case(
        "spec.checkpoint.localDirectory",
        {"spec.checkpoint.directory": "/checkpoints", "spec.checkpoint.localDirectory": "/checkpoints/local"},
        ("spec.checkpoint.localDirectory", "cannot be inside checkpoint.directory: write another path"),
    ),
    "a long local directory": one("spec.checkpoint.localDirectory", "/" + "a" * 1024, "may not be more than 1024"),
    **{
        f"a checkpoint called {name}": Case(
            "spec.checkpoint.pattern",
            {"spec.checkpoint.directory": "/checkpoints", "spec.checkpoint.pattern": name},
            ("spec.checkpoint.pattern", words),
        )
        for words, names in {
            "write {step} once where the number stands": (
                *(
                    "state.npz",
                    "state-{STEP}.npz",
                    "{step}-{step}",
                    "{step}/",
                    "a/{step}",
                    "{step}/a/b",
                    "{step}/{step}",
                    "{step}\n",
                    "a\t{step}/DONE",
                ),
                *("{step}/.", "{step}/.."),
            ),
            "is taken for a save under way": (".{step}", "tmp-{step}", "run.TEMP{step}", "{step}_tmp/DONE"),
        }.items()
        for name in names
    },
    "a pattern without a directory": one(
        "spec.checkpoint.pattern",
        "state-{step}.npz",
        "pattern names checkpoints in checkpoint.directory, which is not set",
    ),
    "a long pattern": one("spec.checkpoint.pattern", "{step}" + "a" * 256, "may not be more than 256"),
    "torn ones aside without a directory": one(
        "spec.checkpoint.moveIncomplete", True, "moveIncomplete moves checkpoints in a file system only"
    ),
    "torn ones aside in a store": Case(
        "spec.checkpoint.moveIncomplete",
        {"spec.checkpoint.directory": "s3://b/x", "spec.checkpoint.moveIncomplete": True},
        ("spec.checkpoint.moveIncomplete", "moveIncomplete moves checkpoints in a file system only"),
    ),
    "a resume argument that is text": one("spec.checkpoint.resumeArgument", "--load /c", "must be of type array"),
    "a resume argument without words": one("spec.checkpoint.resumeArgument", [], "should have at least 1 items"),
    "a resume argument of many words": one("spec.checkpoint.resumeArgument", ["a"] * 33, "must have at most 32 items"),
    "a resume argument with a number": one("spec.checkpoint.resumeArgument", ["--step", 5], "must be of type string"),
    "a resume argument with a long word": Case(
        "spec.checkpoint.resumeArgument",
        {"spec.checkpoint.resumeArgument": ["a" * 1025]},
        ("spec.checkpoint.resumeArgument[0]", "may not be more than 1024"),
    ),
    "a resume argument without a directory": one(
        "spec.checkpoint.resumeArgument",
        ["--load", "/c"],
        "which is not set: set directory, or leave resumeArgument out",
    ),
    **dict([plain("spec.checkpoint.resumeArgument", ["--load", "/c"])]),
    "to resume from a name": one(
        "spec.checkpoint.resumeFrom",
        "latest",
        "write a step, e.g. 5000, the absolute path or the URL of a checkpoint, another job, e.g. job/base@5000, or "
        "Scratch",
    ),
    "a burn-in that is text": one("spec.preflight", "Quick", "must be of type object"),
    "a profile that there is not": one("spec.preflight.profile", "Fast", SUPPORTED),
    **dict(bounds("spec.preflight.maxAgeSeconds", 0, 31536000)),
    **{
        f"to resume from {wish}": one("spec.checkpoint.resumeFrom", wish, "another job, e.g. job/base@5000")
        for wish in (
            "job/",
            "job/Base",
            "job/base@",
            "job/base@last",
            "jobs/base",
            "job/other/base",
            "base@5000",
            f"job/{'a' * 41}",
        )
    },
    "a resume preset that there is not": one("spec.checkpoint.resumePreset", "Horovod", SUPPORTED),
    "a resume preset without a directory": one(
        "spec.checkpoint.resumePreset",
        "Megatron",
        "which is not set: set directory, or leave resumePreset out",
    ),
    "a resume preset beside words that resume": Case(
        "spec.checkpoint.resumePreset",
        {
            "spec.checkpoint.directory": "/c",
            "spec.checkpoint.resumePreset": "Auto",
            "spec.checkpoint.resumeArgument": ["--load", "/c"],
        },
        (
            "spec.checkpoint.resumePreset",
            "resumePreset and resumeArgument both say how the command resumes: leave one of them out",
        ),
    ),
    **dict([plain("spec.checkpoint.resumePreset", "Megatron")]),
    **dict([plain("spec.checkpoint.saveRequest", "now")]),
    "a request to save without a directory": one(
        "spec.checkpoint.saveRequest", "now", "which is not set: set directory, or leave saveRequest out"
    ),
    **{
        f"a request to save called {name!r}": Case(
            "spec.checkpoint.saveRequest",
            {"spec.checkpoint.directory": "/c", "spec.checkpoint.saveRequest": name},
            ("spec.checkpoint.saveRequest", says),
        )
        for name, says in (
            ("", "should be at least 1 chars long"),
            ("n" * 64, "may not be more than 63"),
            ("before the move", "write letters, digits"),
            ("a\nb", "write letters, digits"),
            ("-now", "write letters, digits"),
        )
    },
    "to resume from before the first step": one("spec.checkpoint.resumeFrom", -1, "write a step, e.g. 5000"),
    "to resume from a list": one("spec.checkpoint.resumeFrom", [5], "spec.checkpoint.resumeFrom"),
    **dict([plain("spec.checkpoint.resumeFrom", 5)]),
    "progress that is text": one("spec.progress", "step", "must be of type object"),
    "a step pattern without a group": one("spec.progress.stepPattern", "step=", "put the step number into a group"),
    "an empty step pattern": one("spec.progress.stepPattern", "", "should be at least 1 chars long"),
    "a long step pattern": one("spec.progress.stepPattern", "(" + "a" * 256, "may not be more than 256"),
    **dict([plain("spec.progress.stepPattern", "step=([0-9]+)")]),
    "a preset that there is not": one("spec.progress.preset", "Horovod", SUPPORTED),
    "a preset beside a step pattern": Case(
        "spec.progress.preset",
        {"spec.progress.preset": "Megatron", "spec.progress.stepPattern": "step=([0-9]+)"},
        (
            "spec.progress.preset",
            "preset and stepPattern both say which lines of output report steps: leave one of them out",
        ),
    ),
    **dict([plain("spec.progress.preset", "Megatron")]),
    **dict(bounds("spec.progress.stepTimeoutSeconds", 1, 86400)),
    **dict([plain("spec.progress.stepTimeoutSeconds", 60)]),
    **dict(bounds("spec.progress.startTimeoutSeconds", 1, 86400)),
    **dict([plain("spec.progress.startTimeoutSeconds", 60)]),
    **dict(bounds("spec.progress.totalSteps", 1, 2**53 - 1)),
    **dict([plain("spec.progress.totalSteps", 5000)]),
    **{
        f"an expected duration of {seconds} s": one(
            "spec.queueing.expectedDurationSeconds",
            seconds,
            "write the seconds that the job trains in all, from 1 to 31536000 (a year), or leave",
        )
        for seconds in (-1, 0, 31536001, 2**53)
    },
    "an expected duration in words": one("spec.queueing.expectedDurationSeconds", "2h", "must be of type integer"),
    "queueing that is a number": one("spec.queueing", 3, "must be of type object"),
    "preemptible in words": one("spec.queueing.preemptible", "yes", "must be of type boolean"),
    "recovery that is a number": one("spec.recovery", 3, "must be of type object"),
    **dict(bounds("spec.recovery.applicationRestartsPerDay", 0, 100)),
    **dict(bounds("spec.recovery.hardwareRestartsPerDay", 0, 100)),
    **dict(bounds("spec.recovery.unreachableTimeoutSeconds", 5, 3600)),
    **dict(bounds("spec.recovery.unfencedTimeoutSeconds", 60, 604800)),
    **dict(bounds("spec.recovery.holdSeconds", 0, 86400)),
    "another word for a hold": one("spec.recovery.onFailure", "Wait", 'supported values: "Recover", "Hold"'),
    "a hold in mode Plain": Case(
        "spec.recovery.onFailure",
        {"spec.launch.mode": "Plain", "spec.recovery.onFailure": "Hold"},
        (
            "spec.recovery.onFailure",
            "Hold needs Muster's launcher",
            "Leave onFailure out, or set launch.mode to Managed",
        ),
    ),
    "falling back in words": one("spec.recovery.fallBackFromUnloadable", "never", "must be of type boolean"),
    "completion that is a number": one("spec.completion", 60, "must be of type object"),
    "throughput that is a number": one("spec.throughput", 7, "must be of type object"),
    **dict(bounds("spec.throughput.tokensPerStep", 1, 10**12)),
    **dict(bounds("spec.throughput.parameters", 1, 10**15)),
    **dict(bounds("spec.throughput.flopsPerToken", 1, 2**53 - 1)),
    **dict(bounds("spec.throughput.peakTflopsPerGpu", 1, 10**5)),
    **dict(bounds("spec.completion.ttlSecondsAfterFinished", 0, 31536000)),
    "suspend in words": one("spec.suspend", "yes", "must be of type boolean"),
    "eject in words": one("spec.eject", "yes", "must be of type boolean"),
    "an accepted warning in words": Case(
        "spec.acceptedWarnings",
        {"spec.acceptedWarnings": ["yes, go on"]},
        ("spec.acceptedWarnings[0]", "write a reason as status.warnings has it, e.g. DirectoryInUse"),
    ),
    "accepted warnings that are one text": one("spec.acceptedWarnings", "DirectoryInUse", "must be of type array"),
}

LEVELS = "spec.topology.levels"


def selector_cases(selector: str, subject: str) -> dict[str, Case]:
    """What is wrong with the selector at this path, which selects such objects."""
    cases = {
        "a text": one(selector, "team-a", "must be of type object"),
        "a list of labels": one(f"{selector}.matchLabels", ["team"], "must be of type object"),
        "a label that is none": Case(
            f"{selector}.matchLabels",
            {selector: {"matchLabels": {"a/b/c": "enabled"}}},
            (f"{selector}.matchLabels", "write keys and values of labels, e.g. muster.dev/training: enabled"),
        ),
        "a value that is none": Case(
            f"{selector}.matchLabels",
            {selector: {"matchLabels": {"team": "a, b"}}},
            (f"{selector}.matchLabels", "write keys and values of labels"),
        ),
        "an expression in words": one(f"{selector}.matchExpressions", "team in (a, b)", "must be of type array"),
    }
    for name, field, changes, says in (
        ("the key of no label", "key", {"key": "a/b/c"}, "write the key of a label"),
        ("an operator of Slurm", "operator", {"operator": "Eq"}, f'{SUPPORTED}"In", "NotIn"'),
        ("one value", "values", {"values": "a"}, "must be of type array"),
        ("In nothing", "values", {"values": []}, "In and NotIn compare with values, Exists and DoesNotExist"),
        ("values of DoesNotExist", "values", {"operator": "DoesNotExist"}, "add values, or leave them out"),
    ):
        expression = {"key": "team", "operator": "In", "values": ["a"]} | changes
        cases[name] = Case(
            f"{selector}.matchExpressions[].{field}",
            {f"{selector}.matchExpressions": [expression]},
            (f"{selector}.matchExpressions[0].{field}", says),
        )
    return {f"{subject} by {name}": case for name, case in cases.items()}


def levels(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "label": label} for name, label in pairs]


def health_rule(**changes: Any) -> dict[str, Any]:
    """A valid rule of spec.health, changed; None takes a field away."""
    values = {"name": "a", "label": {"key": "a/b"}, "severity": "Warning", **changes}
    return {name: value for name, value in values.items() if value is not None}


def in_rule(what: str, field: str, changes: dict[str, Any], *says: str) -> tuple[str, Case]:
    """Something wrong in one rule of spec.health; the answer names the field."""
    other = {} if not {"condition", "taint"} & set(changes) else {"label": None}
    path = f"spec.health.rules[].{field}"
    return f"a rule with {what}", Case(
        path, {"spec.health.rules": [health_rule(**other, **changes)]}, (path.replace("[]", "[0]"), *says)
    )


WINDOW: dict[str, Any] = {
    "name": "rack-7",
    "startTime": TIME,
    "endTime": "2026-01-31T18:00:00+01:00",
    "nodes": {"names": ["n-1"]},
}
EXPRESSION: dict[str, Any] = {"key": "rack", "operator": "In", "values": ["r7"]}


def maintenance_window(field: str, changes: Mapping[str, Any], *says: str) -> Case:
    """A window with some fields replaced, or taken away by None."""
    path = "spec.maintenance.windows"
    window = {name: value for name, value in {**WINDOW, **changes}.items() if value is not None}
    return Case(f"{path}[].{field}", {path: [window]}, (f"{path}[0].{field}", *says))


def maintenance_expression(field: str, changes: Mapping[str, Any], *says: str) -> Case:
    """The same of an expression of its selector."""
    path = "spec.maintenance.windows"
    expression = {name: value for name, value in {**EXPRESSION, **changes}.items() if value is not None}
    window = {**WINDOW, "nodes": {"selector": {"matchExpressions": [expression]}}}
    where = f"nodes.selector.matchExpressions[0].{field}"
    return Case(f"{path}[].nodes.selector.matchExpressions[].{field}", {path: [window]}, (f"{path}[0].{where}", *says))


POLICIES: dict[str, Case] = {
    "another name": one("metadata.name", "fleet", "it is called default: use this name"),
    "spec that is text": one("spec", "rack", "must be of type object"),
    "a misspelt field": one(
        "spec.acceleratorResources", "a.b/c", 'unknown field "spec.acceleratorResources"', field="spec"
    ),
    "topology that is a list": one("spec.topology", [], "must be of type object"),
    "levels that are text": one(LEVELS, "rack", "must be of type array"),
    "too many levels": one(
        LEVELS, levels(*((f"l{index}", f"a/l{index}") for index in range(17))), "must have at most 16 items"
    ),
    "two levels of one name": one(
        LEVELS, levels(("rack", "a/b"), ("rack", "a/c")), "two levels have the same name: give each level a name"
    ),
    "two levels of one label": one(
        LEVELS, levels(("block", "a/b"), ("rack", "a/b")), "two levels have the same label: give each level a label"
    ),
    "a level without a name": Case(f"{LEVELS}[].name", {LEVELS: [{"label": "a/b"}]}, (f"{LEVELS}[0].name", MISSING)),
    "a level's name in capitals": Case(
        f"{LEVELS}[].name",
        {LEVELS: levels(("Rack", "a/b"))},
        (f"{LEVELS}[0].name", "write a short name of lower-case letters, digits and '-', e.g. rack"),
    ),
    "a level's name too long": Case(
        f"{LEVELS}[].name", {LEVELS: levels(("r" * 64, "a/b"))}, (f"{LEVELS}[0].name", "may not be more than 63")
    ),
    "a level without a label": Case(f"{LEVELS}[].label", {LEVELS: [{"name": "rack"}]}, (f"{LEVELS}[0].label", MISSING)),
    "a level's label that is no label": Case(
        f"{LEVELS}[].label",
        {LEVELS: levels(("rack", "a/b/c"))},
        (f"{LEVELS}[0].label", "write the key of a node label, e.g. topology.muster.dev/rack"),
    ),
    "a level that is the node itself": Case(
        f"{LEVELS}[].label",
        {LEVELS: levels(("rack", "a/b"), ("host", "kubernetes.io/hostname"))},
        (f"{LEVELS}[1].label", "the node itself is the innermost level already: leave kubernetes.io/hostname out"),
    ),
    "pools that are text": one("spec.pools", "h200", "must be of type array"),
    "too many pools": one("spec.pools", [{"name": f"p{i}"} for i in range(65)], "must have at most 64 items"),
    "two pools of one name": one("spec.pools", [{"name": "a"}, {"name": "a"}], "[1]: Duplicate value"),
    "a pool without a name": Case("spec.pools[].name", {"spec.pools": [{}]}, ("spec.pools[0].name", MISSING)),
    "a pool's name in capitals": Case(
        "spec.pools[].name",
        {"spec.pools": [{"name": "H200"}]},
        ("spec.pools[0].name", "write a short name of lower-case letters, digits and '-', e.g. h200"),
    ),
    "a pool whose selector is a list": Case(
        "spec.pools[].nodeSelector",
        {"spec.pools": [{"name": "a", "nodeSelector": ["b"]}]},
        ("spec.pools[0].nodeSelector", "must be of type object"),
    ),
    "a pool with a long label": Case(
        "spec.pools[].nodeSelector",
        {"spec.pools": [{"name": "a", "nodeSelector": {"b": "c" * 64}}]},
        ("spec.pools[0].nodeSelector.b", "may not be more than 63"),
    ),
    "a binding in lower case": Case(
        "spec.pools[].binding",
        {"spec.pools": [{"name": "a", "binding": "direct"}]},
        ("spec.pools[0].binding", f'{SUPPORTED}"Scheduler", "Direct"'),
    ),
    **{
        name: pool_health(field, health, *says)
        for name, field, health, says in (
            ("a pool's health that is text", "", "Observe", ("must be of type object",)),
            (
                "a pool's enforcement in lower case",
                ".enforcement",
                {"enforcement": "nodes"},
                (f'{SUPPORTED}"Observe", "Jobs", "Nodes"',),
            ),
            (
                "more budgets of a pool than the list may have",
                ".budgets",
                {"budgets": [{"nodes": "1"}] * 17},
                ("have at most 16 items",),
            ),
            (
                "budgets of a pool with different windows",
                ".budgets",
                {"budgets": [{"nodes": "1", "windowSeconds": 60}, {"nodes": "2", "windowSeconds": 600}]},
                ("all budgets with windowSeconds need the same value: write one number of seconds into all of them",),
            ),
            ("a pool's budget without nodes", ".budgets[].nodes", {"budgets": [{}]}, (MISSING,)),
            (
                "a pool's budget beyond all nodes",
                ".budgets[].nodes",
                {"budgets": [{"nodes": "101%"}]},
                ('in quotes, e.g. "4" or "10%"',),
            ),
            (
                "a pool's budget of no node",
                ".budgets[].nodes",
                {"budgets": [{"nodes": "0"}]},
                ("or the enforcement in the pool's health",),
            ),
            (
                "a pool's budget with too short a window",
                ".budgets[].windowSeconds",
                {"budgets": [{"nodes": "1", "windowSeconds": 9}]},
                ("should be greater than or equal to 10",),
            ),
            (
                "a pool's budget per domain with a window",
                ".budgets[].windowSeconds",
                {"budgets": [{"nodes": "1", "per": "Domain", "windowSeconds": 60}]},
                ("leave windowSeconds out",),
            ),
            (
                "a pool's budget of something else",
                ".budgets[].per",
                {"budgets": [{"nodes": "1", "per": "Rack"}]},
                ("Unsupported value",),
            ),
            (
                "a pool's budget per cause with reasons",
                ".budgets[].reasons",
                {"budgets": [{"nodes": "1", "per": "Cause", "reasons": ["UncertainFault"]}]},
                ("leave reasons out",),
            ),
            (
                "a pool's budget for repairs and for faults",
                ".budgets[].reasons",
                {"budgets": [{"nodes": "1", "reasons": ["RepairByOthers", "UncertainFault"]}]},
                ("leave per, windowSeconds and other reasons out",),
            ),
            ("a pool's quarantine that is a number", ".quarantine", {"quarantine": 3}, ("must be of type object",)),
            ("a pool's quarantine of nothing", ".quarantine.incidents", {"quarantine": {}}, (MISSING,)),
            (
                "a pool's quarantine below its least",
                ".quarantine.incidents",
                {"quarantine": {"incidents": 0}},
                ("should be greater than or equal to 1",),
            ),
            (
                "a pool's observed reasons that are text",
                ".observedReasons",
                {"observedReasons": "Xid79"},
                ("must be of type array",),
            ),
            (
                "a pool's observed reason twice",
                ".observedReasons",
                {"observedReasons": ["Xid79", "Xid79"]},
                ("[1]: Duplicate value",),
            ),
            (
                "a pool's observed reason in lower case",
                ".observedReasons",
                {"observedReasons": ["xid79"]},
                ("write the reason of a finding as NodeHealth shows it, e.g. PcieReplay",),
            ),
        )
    },
    "placement that is text": one("spec.placement", "spread", "must be of type object"),
    "accelerator nodes for others in lower case": one(
        "spec.placement.acceleratorNodesForOtherJobs", "never", f'{SUPPORTED}"Never", "WhenFree"'
    ),
    "an empty priority class": one(
        "spec.queueing.priorityClasses", [""], "should be at least 1 chars long", field="spec.queueing.priorityClasses"
    ),
    "priority classes twice": one("spec.queueing.priorityClasses", ["a", "a"], "Duplicate value"),
    "preemption that is a list": one("spec.queueing.preemption", ["urgent"], "must be of type object"),
    "preemption by a class twice": Case(
        "spec.queueing.preemption.priorityClasses",
        {"spec.queueing.preemption": {"priorityClasses": [{"name": "urgent", "namespaces": ["a"]}] * 2}},
        ("spec.queueing.preemption.priorityClasses[1]", "Duplicate value"),
    ),
    "preemption by a class of no namespace": Case(
        "spec.queueing.preemption.priorityClasses[].namespaces",
        {"spec.queueing.preemption": {"priorityClasses": [{"name": "urgent", "namespaces": []}]}},
        ("spec.queueing.preemption.priorityClasses[0].namespaces", "should have at least 1 items"),
    ),
    "preemption by a namespace that is no name": Case(
        "spec.queueing.preemption.priorityClasses[].namespaces",
        {"spec.queueing.preemption": {"priorityClasses": [{"name": "urgent", "namespaces": ["Team A"]}]}},
        ("spec.queueing.preemption.priorityClasses[0].namespaces[0]", "write the name of a namespace"),
    ),
    "preemption by a class that does not count": Case(
        "spec.queueing.preemption.priorityClasses",
        {
            "spec.queueing.priorityClasses": ["batch"],
            "spec.queueing.preemption": {"priorityClasses": [{"name": "urgent", "namespaces": ["a"]}]},
        },
        ("spec.queueing.preemption.priorityClasses", "a class that preempts has to count in the queue"),
    ),
    "preemption by a class of Kubernetes' own": Case(
        "spec.queueing.preemption.priorityClasses[].name",
        {
            "spec.queueing.priorityClasses": [],
            "spec.queueing.preemption": {
                "priorityClasses": [{"name": "system-node-critical", "namespaces": ["kube-system"]}]
            },
        },
        ("spec.queueing.preemption.priorityClasses", "a class that preempts has to count in the queue"),
    ),
    **dict(bounds("spec.queueing.preemption.minRunSeconds", 0, 604800)),
    **dict(bounds("spec.queueing.preemption.preemptionsPerDay", 1, 100)),
    "to show jobs in words": one("spec.queueing.showJobsOfOtherNamespaces", "yes", "must be of type boolean"),
    "queueing that is text": one("spec.queueing", "fifo", "must be of type object"),
    **selector_cases("spec.queueing.namespaceSelector", "namespaces"),
    **selector_cases("spec.scope.nodeSelector", "the scope's nodes"),
    "a scope that is text": one("spec.scope", "all", "must be of type object"),
    "limits in words": one("spec.queueing.limits", "many", "must be of type array"),
    "two limits of one namespace": one(
        "spec.queueing.limits",
        [{"namespace": "a", "nodes": 1}, {"namespace": "a", "nodes": 2}],
        "[1]: Duplicate value",
    ),
    "a limit of no namespace": Case(
        "spec.queueing.limits[].namespace",
        {"spec.queueing.limits": [{"namespace": "Team A", "nodes": 1}]},
        ("spec.queueing.limits[0].namespace", "write the name of a namespace"),
    ),
    "a limit below nothing": Case(
        "spec.queueing.limits[].nodes",
        {"spec.queueing.limits": [{"namespace": "a", "nodes": -1}]},
        ("spec.queueing.limits[0].nodes", "should be greater than or equal to 0"),
    ),
    **dict(bounds("spec.queueing.defaultLimit", 0, 1_000_000)),
    **dict(bounds("spec.queueing.assemblyTimeoutSeconds", 10, 86400)),
    "health that is text": one("spec.health", "good", "must be of type object"),
    "enforcement in lower case": one("spec.health.enforcement", "nodes", f'{SUPPORTED}"Observe", "Jobs", "Nodes"'),
    "a budget that is a number": one("spec.health.budgets", 10, "must be of type array"),
    "a history that is text": one("spec.history", "all", "must be of type object"),
    **dict(bounds("spec.history.maxJobs", 0, 50000)),
    **dict(bounds("spec.history.maxAgeDays", 1, 3650)),
    "limits of jobs that are a number": one("spec.jobLimits", 7, "must be of type object"),
    **dict(bounds("spec.jobLimits.nodes", 1, 4096)),
    **dict(bounds("spec.jobLimits.saveTimeoutSeconds", 0, 86400)),
    **dict(bounds("spec.jobLimits.applicationRestartsPerDay", 0, 100)),
    **dict(bounds("spec.jobLimits.hardwareRestartsPerDay", 0, 100)),
    **dict(bounds("spec.jobLimits.holdSeconds", 0, 86400)),
    "prices that are a number": one("spec.prices", 7, "must be of type object"),
    "a price that is a number": one("spec.prices.perGpuHour", 2.5, "must be of type string"),
    "a negative price": one("spec.prices.perGpuHour", "-1", "as a decimal number in quotes, e.g. '2.50'"),
    "a price that is not a number": one("spec.prices.perGpuHour", "NaN", "as a decimal number in quotes"),
    "a price with a comma": one("spec.prices.perGpuHour", "2,50", "as a decimal number in quotes"),
    "a price beyond all bounds": one("spec.prices.perGpuHour", "1" * 14, "may not be more than 13"),
    "an empty price": one("spec.prices.perGpuHour", "", "should be at least 1 chars long"),
    "a long currency": one("spec.prices.currency", "E" * 17, "may not be more than 16"),
    "a currency that is a number": one("spec.prices.currency", 7, "must be of type string"),
    "prices of models that are text": one("spec.prices.models", "all", "must be of type array"),
    "a model with two prices": one(
        "spec.prices.models", [{"model": "a", "perGpuHour": "1"}, {"model": "a", "perGpuHour": "2"}], "Duplicate value"
    ),
    "too many prices": one(
        "spec.prices.models", [{"model": f"m{n}", "perGpuHour": "1"} for n in range(65)], "must have at most 64 items"
    ),
    "a model without a price": one(
        "spec.prices.models", [{"model": "a"}], "Required value", field="spec.prices.models[].perGpuHour"
    ),
    "a model's negative price": one(
        "spec.prices.models",
        [{"model": "a", "perGpuHour": "-1"}],
        "as a decimal number",
        field="spec.prices.models[].perGpuHour",
    ),
    "a price without a model": one(
        "spec.prices.models", [{"perGpuHour": "1"}], "Required value", field="spec.prices.models[].model"
    ),
    "a price of a model without a name": one(
        "spec.prices.models",
        [{"model": "", "perGpuHour": "1"}],
        "at least 1 chars long",
        field="spec.prices.models[].model",
    ),
    "a burn-in policy that is text": one("spec.preflight", "Quick", "must be of type object"),
    "a policy's profile that there is not": one("spec.preflight.profile", "Fast", SUPPORTED),
    "a least profile that there is not": one("spec.preflight.minimumProfile", "Fast", SUPPORTED),
    "a least profile beyond the usual one": one(
        "spec.preflight.minimumProfile", "Quick", "raise profile, or lower minimumProfile"
    ),
    **dict(bounds("spec.preflight.maxAgeSeconds", 0, 31536000)),
    **dict(bounds("spec.preflight.idleMaxAgeSeconds", 0, 31536000)),
    "neither start nor wait": one("spec.preflight.onInconclusive", "Hope", SUPPORTED),
    "a transport that is a number": one("spec.preflight.transport", 5, "must be of type string"),
    **dict(bounds("spec.preflight.maxReplacements", 1, 32)),
    "a limit of a probe that there is not": preflight_limit("probe", {"probe": "speed", "minimum": "1"}, SUPPORTED),
    "a limit for a name that is too long": preflight_limit(
        "model", {"probe": "pair", "model": "x" * 129, "minimumPercent": 1}, "may not be more than 128"
    ),
    "a limit with its unit": preflight_limit("minimum", {"probe": "pair", "minimum": "48 GB/s"}, "without its unit"),
    "a limit below nothing at all": preflight_limit("minimum", {"probe": "pair", "minimum": "-1"}, "without its unit"),
    "a limit beyond any GPU": preflight_limit("minimum", {"probe": "pair", "minimum": "1234567"}, "without its unit"),
    "a share of nothing": preflight_limit(
        "minimumPercent", {"probe": "pair", "minimumPercent": 0}, "greater than or equal to 1"
    ),
    "a share that half of all nodes miss": preflight_limit(
        "minimumPercent", {"probe": "pair", "minimumPercent": 96}, "less than or equal to 95"
    ),
    "a limit that is two": preflight_limit(
        "", {"probe": "pair", "minimum": "1", "minimumPercent": 80}, "write either minimum or minimumPercent"
    ),
    "a limit that is none": preflight_limit("", {"probe": "pair"}, "write either minimum or minimumPercent"),
    "two limits for one probe and model": one(
        "spec.preflight.limits",
        [{"probe": "pair", "minimumPercent": 80}, {"probe": "pair", "minimum": "1"}],
        "[1]: Duplicate value",
    ),
    "limits that are text": one("spec.preflight.limits", "pair", "must be of type array"),
    "more limits than probes and models": one(
        "spec.preflight.limits",
        [{"probe": "pair", "model": str(n), "minimumPercent": 1} for n in range(65)],
        "have at most 64 items",
    ),
    "more budgets than the list may have": one("spec.health.budgets", [{"nodes": "1"}] * 17, "have at most 16 items"),
    "budgets with different windows": one(
        "spec.health.budgets",
        [{"nodes": "1", "windowSeconds": 60}, {"nodes": "2", "windowSeconds": 600}],
        "all budgets with windowSeconds need the same value",
    ),
    "a budget without nodes": budget("nodes", {"per": "Pool"}, "Required value"),
    "a budget that is no text": budget("nodes", {"nodes": 4}, "must be of type string"),
    "a budget of no percentage": budget("nodes", {"nodes": "tenth"}, 'in quotes, e.g. "4" or "10%"'),
    "a budget beyond all nodes": budget("nodes", {"nodes": "101%"}, 'in quotes, e.g. "4" or "10%"'),
    "a budget of no node": budget("nodes", {"nodes": "0"}, "set spec.health.enforcement to Observe"),
    "a budget with too short a window": budget(
        "windowSeconds", {"nodes": "1", "windowSeconds": 9}, "should be greater than or equal to 10"
    ),
    "a budget with too long a window": budget(
        "windowSeconds", {"nodes": "1", "windowSeconds": 86401}, "should be less than or equal to 86400"
    ),
    "a budget per domain with a window": budget(
        "windowSeconds", {"nodes": "1", "per": "Domain", "windowSeconds": 60}, "leave windowSeconds out"
    ),
    "a budget of something else": budget("per", {"nodes": "1", "per": "Rack"}, "Unsupported value"),
    "a budget per cause with reasons": budget(
        "reasons", {"nodes": "1", "per": "Cause", "reasons": ["UncertainFault"]}, "leave reasons out"
    ),
    "a budget for repairs and for faults": budget(
        "reasons",
        {"nodes": "1", "reasons": ["RepairByOthers", "UncertainFault"]},
        "leave per, windowSeconds and other reasons out",
    ),
    "quarantine that is a number": one("spec.health.quarantine", 3, "must be of type object"),
    **dict(bounds("spec.health.quarantine.incidents", 1, 32)),
    **dict(bounds("spec.health.quarantine.halfLifeSeconds", 60, 31536000)),
    "sources that are text": one("spec.health.sources", "eks", "must be of type array"),
    "too many sources": one("spec.health.sources", [{"name": "eks"} for _ in range(33)], "must have at most 32 items"),
    "a source twice": one("spec.health.sources", [{"name": "eks"}, {"name": "eks"}], "[1]: Duplicate value"),
    "a source that Muster does not know": Case(
        "spec.health.sources[].name",
        {"spec.health.sources": [{"name": "EKS"}]},
        ("spec.health.sources[0].name", f'{SUPPORTED}"ack", "agent", "aks"'),
    ),
    "a source that is switched in words": Case(
        "spec.health.sources[].enabled",
        {"spec.health.sources": [{"name": "eks", "enabled": "no"}]},
        ("spec.health.sources[0].enabled", "must be of type boolean"),
    ),
    "a rule about Muster's own condition": Case(
        "spec.health.rules[].condition.type",
        {"spec.health.rules": [health_rule(label=None, condition={"type": "MusterHealthy"})]},
        ("spec.health.rules[0].condition.type", "Muster itself writes MusterHealthy"),
    ),
    "a condition that is switched in words": one("spec.health.nodeCondition", "no", "must be of type boolean"),
    "a source that is off and observed": Case(
        "spec.health.sources[].observeOnly",
        {"spec.health.sources": [{"name": "eks", "enabled": False, "observeOnly": True}]},
        ("spec.health.sources[0].observeOnly", "a source that is not enabled cannot be observed"),
    ),
    "ports that are left out, as text": one("spec.health.ignoredPorts", "mlx5_8", "must be of type array"),
    "too many ports that are left out": one(
        "spec.health.ignoredPorts", [{"names": ["a"]} for _ in range(33)], "must have at most 32 items"
    ),
    "no port that is left out": Case(
        "spec.health.ignoredPorts[].names",
        {"spec.health.ignoredPorts": [{"names": []}]},
        ("spec.health.ignoredPorts[0].names", "should have at least 1 items"),
    ),
    "a port that is left out by a regular expression": Case(
        "spec.health.ignoredPorts[].names",
        {"spec.health.ignoredPorts": [{"names": ["mlx5_[89]"]}]},
        ("spec.health.ignoredPorts[0].names[0]", "with * and ? for any characters and any one"),
    ),
    "a port that is left out on nodes of a list": Case(
        "spec.health.ignoredPorts[].nodeSelector",
        {"spec.health.ignoredPorts": [{"names": ["a"], "nodeSelector": ["b"]}]},
        ("spec.health.ignoredPorts[0].nodeSelector", "must be of type object"),
    ),
    "a rule that is observed in words": Case(
        "spec.health.rules[].observeOnly",
        {"spec.health.rules": [health_rule(observeOnly="yes")]},
        ("spec.health.rules[0].observeOnly", "must be of type boolean"),
    ),
    "a reason that is observed and is none": Case(
        "spec.health.observedReasons",
        {"spec.health.observedReasons": ["pcie replay"]},
        ("spec.health.observedReasons[0]", "write the reason of a finding as NodeHealth shows it"),
    ),
    "a reason that is observed twice": one("spec.health.observedReasons", ["Xid79", "Xid79"], "[1]: Duplicate value"),
    "rules that are text": one("spec.health.rules", "strict", "must be of type array"),
    "too many rules": one(
        "spec.health.rules",
        [health_rule(name=f"r{i}", label={"key": f"a/l{i}"}) for i in range(33)],
        "must have at most 32 items",
    ),
    "two rules of one name": one(
        "spec.health.rules", [health_rule(), health_rule(label={"key": "a/b"})], "[1]: Duplicate value"
    ),
    "two rules about one condition": one(
        "spec.health.rules",
        [health_rule(name=name, label=None, condition={"type": "GpuSick"}) for name in "ab"],
        "two rules say something about the same condition: keep one of them",
    ),
    "two rules about one label": one(
        "spec.health.rules",
        [health_rule(name="a"), health_rule(name="b", severity="Fatal")],
        "two rules say something about the same label: keep one of them",
    ),
    "two rules about one taint": one(
        "spec.health.rules",
        [health_rule(name=name, label=None, taint={"key": "a/t"}) for name in "ab"],
        "two rules say something about the same taint: keep one of them",
    ),
    "a rule about nothing": one(
        "spec.health.rules", [health_rule(label=None)], "write either condition, label or taint"
    ),
    "a rule about two things": one(
        "spec.health.rules", [health_rule(taint={"key": "a/t"})], "write either condition, label or taint"
    ),
    **dict(
        in_rule(what, field, changes, *says)
        for what, field, changes, says in (
            ("a name in capitals", "name", {"name": "Rule"}, ("write a short name of lower-case letters",)),
            ("a condition that is text", "condition", {"condition": "Sick"}, ("must be of type object",)),
            (
                "a condition with a space",
                "condition.type",
                {"condition": {"type": "a b"}},
                ("write the type of a node's",),
            ),
            ("a condition without a type", "condition.type", {"condition": {}}, (MISSING,)),
            (
                "a polarity in words",
                "condition.badWhenFalse",
                {"condition": {"type": "A", "badWhenFalse": "False"}},
                ("must be of type boolean",),
            ),
            (
                "a long reason",
                "condition.reason",
                {"condition": {"type": "A", "reason": "r" * 129}},
                ("may not be more than 128",),
            ),
            ("a label that is text", "label", {"label": "a/b"}, ("must be of type object",)),
            ("a label that is no label", "label.key", {"label": {"key": "a/b/c"}}, ("write the key of a label",)),
            ("a long value", "label.value", {"label": {"key": "a/b", "value": "v" * 64}}, ("may not be more than 63",)),
            ("a taint that is text", "taint", {"taint": "a/b"}, ("must be of type object",)),
            ("a taint that is no taint", "taint.key", {"taint": {"key": "a/b/c"}}, ("write the key of a taint",)),
            (
                "Muster's own taint",
                "taint.key",
                {"taint": {"key": "muster.dev/unhealthy"}},
                ("which would be their own evidence: write another taint",),
            ),
            (
                "a taint's long value",
                "taint.value",
                {"taint": {"key": "a/b", "value": "v" * 64}},
                ("may not be more than",),
            ),
            ("an age below nothing", "minimumAgeSeconds", {"minimumAgeSeconds": -1}, ("greater than or equal to 0",)),
            ("an age of more than a day", "minimumAgeSeconds", {"minimumAgeSeconds": 86401}, ("or equal to 86400",)),
            ("a severity in lower case", "severity", {"severity": "fatal"}, (f'{SUPPORTED}"Info", "Warning"',)),
            ("no severity", "severity", {"severity": None}, (MISSING,)),
            ("an unknown action", "action", {"action": "Pray"}, (f'{SUPPORTED}"None", "Reset"',)),
            (
                "an action for the record",
                "action",
                {"severity": "Info", "action": "Reboot"},
                ("severity Info asks for nothing: leave action out, or use Warning",),
            ),
            (
                "a plan that cannot wait",
                "planned",
                {"severity": "Fatal", "planned": True},
                ("use severity Degraded, or leave planned out",),
            ),
        )
    ),
    "repairs that are text": one("spec.health.repair", "Reboot", "must be of type object"),
    "a repair that there is not": one("spec.health.repair.actions", ["Pray"], f'{SUPPORTED}"Inspect", "Reset"'),
    "a repair twice": one("spec.health.repair.actions", ["Reset", "Reset"], "[1]: Duplicate value"),
    **dict(bounds("spec.health.repair.maxConcurrent", 1, 1000)),
    "maintenance that is text": one("spec.maintenance", "tonight", "must be of type object"),
    **dict(bounds("spec.maintenance.closeBeforeSeconds", 60, 1209600)),
    **dict(bounds("spec.maintenance.evacuateBeforeSeconds", 60, 1209600)),
    "jobs that leave before nodes are closed": Case(
        "spec.maintenance.evacuateBeforeSeconds",
        {"spec.maintenance": {"evacuateBeforeSeconds": 600, "closeBeforeSeconds": 300}},
        ("spec.maintenance.evacuateBeforeSeconds", "jobs cannot leave before the nodes are closed to new ones"),
    ),
    "windows that are text": one("spec.maintenance.windows", "tonight", "must be of type array"),
    "two windows of one name": one("spec.maintenance.windows", [WINDOW, WINDOW], "[1]: Duplicate value"),
    "more windows than anybody keeps": one(
        "spec.maintenance.windows",
        [{**WINDOW, "name": f"w-{number}"} for number in range(65)],
        "must have at most 64 items",
    ),
    **{
        name: maintenance_window(field, changes, *says)
        for name, field, changes, says in (
            ("a window without a name", "name", {"name": None}, (MISSING,)),
            ("a window's name in capitals", "name", {"name": "Rack"}, ("write a short name of lower-case letters",)),
            ("a window's long name", "name", {"name": "a" * 64}, ("may not be more than 63",)),
            ("a window without a start", "startTime", {"startTime": None}, (MISSING,)),
            (
                "a start without a zone",
                "startTime",
                {"startTime": "2026-01-31T12:00:00"},
                ("must be of type date-time",),
            ),
            (
                "a start before all clocks",
                "startTime",
                {"startTime": "1969-12-31T00:00:00Z", "endTime": "1970-01-02T00:00:00Z"},
                ("a time between 1970 and 2200 is needed",),
            ),
            ("a window without an end", "endTime", {"endTime": None}, (MISSING,)),
            ("an end in words", "endTime", {"endTime": "tomorrow"}, ("must be of type date-time",)),
            (
                "an end before the start",
                "endTime",
                {"endTime": "2026-01-31T12:30:00+01:00"},
                ("a window ends after it starts: write a later time",),
            ),
            (
                "a window of a year",
                "endTime",
                {"endTime": "2027-01-31T13:00:00Z"},
                ("a window lasts at most 90 days: look at the year",),
            ),
            ("a window of nothing", "nodes", {"nodes": None}, (MISSING,)),
            ("a window of no nodes", "nodes", {"nodes": {}}, ("a window is about nodes: write names, or a selector",)),
            ("names that are text", "nodes.names", {"nodes": {"names": "n-1"}}, ("must be of type array",)),
            ("a node twice", "nodes.names", {"nodes": {"names": ["n-1", "n-1"]}}, ("[1]: Duplicate value",)),
            (
                "more names than a list is for",
                "nodes.names",
                {"nodes": {"names": [f"n-{number}" for number in range(1025)]}},
                ("must have at most 1024 items",),
            ),
            ("a selector that is text", "nodes.selector", {"nodes": {"selector": "r7"}}, ("must be of type object",)),
            (
                "labels that are a list",
                "nodes.selector.matchLabels",
                {"nodes": {"selector": {"matchLabels": ["r7"]}}},
                ("must be of type object",),
            ),
            (
                "expressions that are text",
                "nodes.selector.matchExpressions",
                {"nodes": {"selector": {"matchExpressions": "r7"}}},
                ("must be of type array",),
            ),
            ("a long reason for a window", "reason", {"reason": "r" * 257}, ("may not be more than 256",)),
        )
    },
    **{
        name: maintenance_expression(field, changes, *says)
        for name, field, changes, says in (
            ("an expression without a key", "key", {"key": None}, (MISSING,)),
            ("an expression about no label", "key", {"key": "a/b/c"}, ("write the key of a label",)),
            ("an expression without an operator", "operator", {"operator": None}, (MISSING,)),
            ("an expression that counts", "operator", {"operator": "Gt"}, (f'{SUPPORTED}"In", "NotIn"',)),
            ("values that are text", "values", {"values": "r7"}, ("must be of type array",)),
            ("In nothing", "values", {"values": []}, ("In and NotIn compare with values",)),
            ("Exists with values", "values", {"operator": "Exists"}, ("In and NotIn compare with values",)),
        )
    },
    "an accelerator without a domain": one(
        "spec.acceleratorResource",
        "gpus",
        "write the name of an extended resource with its domain, e.g. nvidia.com/gpu",
    ),
    "an accelerator that is no name": one(
        "spec.acceleratorResource", "nvidia.com/", "write the name of an extended resource with its domain"
    ),
    "an accelerator too long": one("spec.acceleratorResource", "a/" + "b" * 316, "may not be more than 317"),
}

DECISION = {"decision": "Cordon", "reason": "loose cable", "user": "anna", "time": TIME}


def decision(field: str, value: Any, *says: str) -> Case:
    """A human's word with one field replaced, or taken away by None."""
    word = {name: part for name, part in {**DECISION, field: value}.items() if part is not None}
    return Case(f"spec.override.{field}", {"spec.override": word}, (f"spec.override.{field}", *says))


def lost(field: str, value: Any, *says: str) -> Case:
    """The same of a word that a machine is dead."""
    word = {"reason": "its power supply burnt", "time": TIME, field: value}
    word = {name: part for name, part in word.items() if part is not None}
    return Case(f"spec.lost.{field}", {"spec.lost": word}, (f"spec.lost.{field}", *says))


HEALTHS: dict[str, Case] = {
    "a name that no node has": one("metadata.name", "Node_1", "a lowercase RFC 1123 subdomain must consist of"),
    "spec that is text": one("spec", "Cordon", "must be of type object"),
    "a misspelt field": one("spec.humans", {}, 'unknown field "spec.humans"', field="spec"),
    "a decision that is text": one("spec.override", "Cordon", "must be of type object"),
    "a decision in lower case": decision("decision", "cordon", f'{SUPPORTED}"Cordon", "Release"'),
    "no decision": decision("decision", None, MISSING),
    "no reason": decision("reason", None, MISSING),
    "an empty reason": decision("reason", "", "say why: the text is shown wherever the node is"),
    "a long reason": decision("reason", "r" * 513, "may not be more than 512"),
    "a long name of who said so": decision("user", "b" * 254, "may not be more than 253"),
    "no time": decision("time", None, MISSING),
    "a time without a zone": decision("time", "yesterday", "must be of type date-time"),
    "a wish that is text": one("spec.check", "Quick", "must be of type object"),
    "a wish without a name": one("spec.check", {"profile": "Quick", "time": TIME}, MISSING, field="spec.check.id"),
    "a wish for a profile that there is not": one(
        "spec.check", {"id": "w", "profile": "Fast", "time": TIME}, SUPPORTED, field="spec.check.profile"
    ),
    "a wish by a number": one(
        "spec.check", {"id": "w", "user": 5, "time": TIME}, "must be of type string", field="spec.check.user"
    ),
    "a wish without a time": one("spec.check", {"id": "w"}, MISSING, field="spec.check.time"),
    "a lost node that is text": one("spec.lost", "gone", "must be of type object"),
    "lost for no reason": lost("reason", "", "say how you know it: the text is shown wherever the node is"),
    "lost for a long reason": lost("reason", "r" * 513, "may not be more than 512"),
    "lost, said without a reason": lost("reason", None, MISSING),
    "lost, by a long name": lost("user", "b" * 254, "may not be more than 253"),
    "lost at no time": lost("time", None, MISSING),
    "lost in a long boot": lost("bootId", "b" * 65, "may not be more than 64"),
    "lost after a long renewal": lost("lastRenewal", "r" * 65, "may not be more than 64"),
}

CASES = [
    *(pytest.param("TrainingJob", case, id=f"TrainingJob: {name}") for name, case in JOBS.items()),
    *(pytest.param("FleetPolicy", case, id=f"FleetPolicy: {name}") for name, case in POLICIES.items()),
    *(pytest.param("NodeHealth", case, id=f"NodeHealth: {name}") for name, case in HEALTHS.items()),
]


WRITTEN = [("TrainingJob", JOBS), ("FleetPolicy", POLICIES), ("NodeHealth", HEALTHS)]


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_is_refused(
    kind: str, case: Case, manifest: Callable[..., Any], refusal: Callable[..., str], without: object
) -> None:
    changes = {path: without if value is REMOVED else value for path, value in case.changes.items()}
    # A dry run, so that a case that is accepted by mistake does not change what the next one says.
    said = refusal(manifest(kind, changes))
    assert said, "accepted"
    for words in case.says:
        assert words in said


@pytest.mark.parametrize(("kind", "cases"), WRITTEN)
def test_every_field_that_users_write_has_a_case(kind: str, cases: dict[str, Case]) -> None:
    spec = render.object_schema(RESOURCES[kind])["properties"]["spec"]
    fields = {"metadata.name", "spec", *(f"spec.{path}" for path, _ in render.leaves(spec))}
    assert fields == {case.field for case in cases.values()}


@pytest.mark.parametrize(("kind", "cases"), WRITTEN)
def test_every_rule_about_one_version_of_an_object_has_a_case(kind: str, cases: dict[str, Case]) -> None:
    schema = render.object_schema(RESOURCES[kind])
    said = [words for case in cases.values() for words in case.says]
    for _, part in [("", schema), *render.leaves(schema)]:
        for rule in [
            *part.get("x-kubernetes-validations", []),
            *part.get("items", {}).get("x-kubernetes-validations", []),
        ]:
            if "oldSelf" not in rule["rule"]:
                assert any(words in rule["message"] for words in said), f"no case for: {rule['message']}"


SEEN: dict[str, Any] = {
    "startMilliseconds": 100,
    "firstStepMilliseconds": 9000,
    "lastStepMilliseconds": 21000,
    "firstStep": 6,
    "step": 7,
    "stepMilliseconds": 2000,
    "stepP90Milliseconds": 2300,
    "loss": "2.31",
    "tokensPerGpuSecond": 7104,
    "printedStepMilliseconds": 1900,
    "gflopsPerGpu": 411_200,
    "mfuPermille": 416,
    "measuredSaves": 3,
    "joules": 70_000,
    "meteredGpuMilliseconds": 90_000,
    "checkpointSteps": 5,
    "stepStride": 1,
    "lostSteps": 2,
    "lostMilliseconds": 4000,
    "lowestRestartedStep": 5,
    "reportedMilliseconds": {"inputWait": 500},
}

FINGERPRINT: dict[str, Any] = {
    "attempt": 1,
    "image": "sha256:ab",
    "gpuModel": "NVIDIA-H200",
    "driver": "570.86.15",
    "environment": "0123456789abcdef",
    "collectives": "NCCL 2.27.7+cuda12.9",
    "revision": "4f2c",
}

FULL_GANG_SPEC: dict[str, Any] = {
    "ejected": True,
    "burnIn": {
        "profile": "Quick",
        "time": TIME,
        "tries": 1,
        "sinceAttempt": 1,
        "failures": [
            {"node": "n1", "boot": "b", "time": TIME, "probe": "pair", "message": "slow", "partners": ["n2", "n3"]}
        ],
        "untested": ["n4"],
        "message": "no checker",
        "allReduce": {"time": TIME, "message": "all-reduce over 4 nodes: 1.2 GB/s (TCP)"},
    },
    "jobUid": "7f3b",
    "attempt": 2,
    "time": TIME,
    "level": "R0",
    "reason": "ProcessExited",
    "members": [{"node": "node-1", "incarnation": 1, "podUid": "1", "isReplacement": True}],
    "topology": [{"level": "block", "domains": 1}],
    "releases": 1,
    "listingRound": 1,
    "moveIncompleteBeyond": {"step": 5, "path": "/checkpoints/5"},
    "start": {
        "time": TIME,
        "masterAddress": "10.0.0.1",
        "masterPort": 29500,
        "resume": {"step": 5, "path": "/checkpoints/5"},
        "resumePreset": "Megatron",
    },
    "unfencedWorkers": [{"pod": "small-1-1", "podUid": "2", "node": "node-2", "fencedTime": TIME}],
    "placedTime": TIME,
    "preemptions": [{"time": TIME, "answered": True}],
    "evacuation": {"reason": "Drain", "nodes": ["node-1"], "since": TIME, "deadline": TIME, "afterStep": 5},
    "incidents": [
        {
            "attempt": 1,
            "time": TIME,
            "level": "R0",
            "faultClass": "Application",
            "reason": "ProcessExited",
            "node": "node-1",
            "index": 0,
            "rank": 0,
            "exitCode": 1,
            "signal": 9,
            "step": 7,
            "resumedStep": 5,
            "message": "rank 0 exited with 1",
            "settled": True,
            "faultTime": TIME,
            "resumedTime": TIME,
            "lostMilliseconds": 4000,
            "otherWorkers": 2,
            "ownException": True,
            "stacks": [{"ranks": "0-2, 5", "count": 4, "stack": "train.py:88 in step", "problem": ""}],
        }
    ],
    "account": {
        "creationTime": TIME,
        "countedUntil": TIME,
        "milliseconds": {"compute": 10000},
        "gpuMilliseconds": {"compute": 80000},
        "segments": [{"afterStep": 0, "step": 5, "gpus": 8, "milliseconds": {"compute": 10000}}],
        "hasRun": True,
        "hasSteps": True,
        "failures": 1,
        "failedStarts": 1,
        "lostSteps": 2,
        "firstCheckpointMilliseconds": 9000,
        "fingerprints": [FINGERPRINT],
        "progress": SEEN,
    },
    "excludedNodes": {"node-2": TIME},
    "holdUntil": TIME,
    "checkpoint": {"step": 5, "path": "/checkpoints/5"},
    "branch": {"resumeFrom": "", "step": 6, "frozen": True, "excludedCheckpoints": "9:1700000000000000000"},
    "corruption": {
        "attempt": 1,
        "time": TIME,
        "reason": "NonFiniteLoss",
        "node": "node-1",
        "foundAt": 7,
        "lastGood": 6,
        "suspectBeyondStep": 6,
        "newestCheckpoint": {"step": 7, "path": "/checkpoints/7"},
        "occurrences": 1,
        "open": False,
        "culprits": ["node-2"],
        "examination": "CulpritFound",
        "suspectSteps": [7],
        "suspectCount": 1,
        "resumedStep": 5,
        "message": "rank 0 has found NonFiniteLoss at step 7",
    },
}

FULL_ENDED_JOB: dict[str, Any] = {
    "measuredTflops": 700,
    "joules": 70_000,
    "meteredGpuSeconds": 90,
    "jobUid": "7f3b",
    "namespace": "team-a",
    "name": "small",
    "experiment": "lr-3",
    "owner": "ada",
    "priorityClass": "research",
    "gpuModel": "NVIDIA-H200",
    "failuresByClass": {"Hardware": 2},
    "gpus": 16,
    "nodes": 2,
    "creationTime": TIME,
    "endTime": TIME,
    "state": "Failed",
    "reason": "BudgetExhausted",
    "message": "5 failures within 24 hours",
    "seconds": {"compute": 10},
    "gpuSeconds": {"compute": 160},
    "ettrPermille": 900,
    "ettrAfterQueuePermille": 950,
    "attempts": 2,
    "failures": 1,
    "failedStarts": 1,
    "step": 7,
    "steps": 7,
    "throughput": {"tokensPerStep": 4096, "parameters": 7, "flopsPerToken": 42, "peakTflopsPerGpu": 989},
    "lostSteps": 2,
    "lostSeconds": 4,
    "checkpointStep": 5,
    "progressUnknown": True,
    "firstCheckpointSeconds": 9,
    "causes": [{"faultClass": "Hardware", "reason": "NodeLost", "incidents": 1, "gpuSeconds": 16}],
    "blamedNodes": [{"node": "node-1", "incidents": 1, "gpuSeconds": 16}],
    "fingerprints": [FINGERPRINT],
    "otherBlamedNodes": 1,
}

FULL_STATUS: dict[str, Any] = {
    "warnings": [{"reason": "DirectoryShared", "message": "that of bert, too", "since": TIME}],
    "observedGeneration": 1,
    "state": "Running",
    "reason": "Training",
    "attempt": 2,
    "nodesReady": "2/2",
    "nodes": ["node-1", "node-2"],
    "topology": [{"level": "block", "domains": 1}],
    "backfilled": True,
    "lentUntil": TIME,
    "waiting": {
        "needs": 4,
        "level": "block",
        "segmentSize": 2,
        "position": 1,
        "queued": 2,
        "fleet": 8,
        "suitable": 6,
        "free": 3,
        "reserved": 2,
        "domains": [{"domain": "b1", "free": 3, "suitable": 4}],
        "blockers": [{"reason": "cordoned", "nodes": 2}],
        "remedies": ["uncordon 2 nodes"],
        "since": TIME,
    },
    "startEstimate": {
        "time": TIME,
        "reason": "team-a/llama ends by its step rate",
        "generation": 1,
        "firstTime": TIME,
        "firstEstimatedTime": TIME,
        "startedTime": TIME,
    },
    "step": 7,
    "checkpoint": {
        "step": 5,
        "path": "/checkpoints/5",
        "format": "TorchDCP",
        "time": TIME,
        "saves": [
            {
                "step": 5,
                "time": TIME,
                "bytes": 98213400576,
                "saveSeconds": 21,
                "stallSeconds": 4,
                "durableSeconds": 31,
                "freeBytes": 90000000000,
            }
        ],
        "concerns": [{"reason": "CheckpointSpaceLow", "message": "90 GB can still be written", "since": TIME}],
    },
    "restarts": 1,
    "corruption": {
        "attempt": 1,
        "time": TIME,
        "reason": "NonFiniteLoss",
        "node": "node-1",
        "foundAt": 7,
        "suspectSteps": [7],
        "suspectCount": 1,
        "resumedStep": 5,
        "examination": "CulpritFound",
        "culprits": ["node-2"],
        "message": "rank 0 has found NonFiniteLoss at step 7; it went on from step 5",
    },
    "incidents": [
        {
            "attempt": 1,
            "time": TIME,
            "level": "R0",
            "faultClass": "Application",
            "reason": "ProcessExited",
            "node": "node-1",
            "message": "rank 0 exited with 1",
            "lostSteps": 2,
            "faultTime": TIME,
            "heldSeconds": 60,
            "askedTime": TIME,
            "resumedTime": TIME,
            "lostSeconds": 4,
        }
    ],
    "goodput": {
        "creationTime": TIME,
        "countedUntil": TIME,
        "seconds": {"compute": 10},
        "gpuSeconds": {"compute": 80},
        "ettrPermille": 900,
        "ettrAfterQueuePermille": 950,
        "failures": 1,
        "failedStarts": 1,
        "steps": 7,
        "lostSteps": 2,
        "unsavedSeconds": 3,
        "lostAtEndSeconds": 30,
        "progressUnknown": True,
        "openPhase": {"bucket": "compute", "since": TIME, "gpus": 8},
        "suspensionTime": TIME,
        "firstCheckpointSeconds": 9,
        "stepMilliseconds": 2000,
        "stepStride": 10,
        "stepP90Milliseconds": 2300,
        "measuredTflops": 700,
        "joules": 70_000,
        "meteredGpuSeconds": 90,
        "checkpointSteps": 5,
        "failuresByClass": {"Hardware": 2},
        "reportedBuckets": ["inputWait"],
        "checkpointStallMilliseconds": 300,
        "gpuModel": "NVIDIA-H200",
        "fingerprints": [FINGERPRINT],
        "progress": SEEN,
        "clockAheadSeconds": -7200,
    },
    "conditions": [
        {
            "type": "Succeeded",
            "status": "Unknown",
            "reason": "Training",
            "message": "step 7",
            "observedGeneration": 1,
            "lastTransitionTime": TIME,
        }
    ],
    "completion": {"result": "Succeeded", "reason": "Finished", "message": "", "time": TIME, "attempt": 2},
}

FULL_HEALTH: dict[str, Any] = {
    "check": {
        "id": "w1",
        "profile": "Quick",
        "outcome": "Pass",
        "time": TIME,
        "seconds": 20,
        "device": "H200",
        "probes": [{"probe": "gemm", "outcome": "Pass", "value": "1 s", "threshold": "2 s", "message": "fine"}],
        "message": "fine",
    },
    "evidence": [
        {
            "kind": "Xid",
            "subject": "GPU-1",
            "code": 79,
            "value": "1",
            "threshold": "0",
            "message": "GPU has fallen off the bus",
            "firstSeen": TIME,
            "lastSeen": TIME,
            "count": 2,
            "bootId": "b-1",
        }
    ],
    "agent": {
        "version": "0.1.0",
        "bootId": "b-1",
        "systemUuid": "s-1",
        "gpuSerials": ["1650"],
        "gpuModel": "NVIDIA H200",
        "gpus": 8,
        "gpusExpected": 8,
        "ports": 7,
        "portsExpected": 8,
        "portsUp": ["mlx5_0/1"],
        "portsExpectedUp": ["mlx5_0/1", "mlx5_1/1"],
        "driver": "580.159.04",
        "problem": "",
        "resetsWatchedSince": 7,
    },
    "state": "Unhealthy",
    "reason": "Xid79",
    "message": "a GPU is lost: reboot",
    "since": TIME,
    "recommendedAction": "Reboot",
    "findings": [
        {
            "source": "agent",
            "reason": "Xid79",
            "subject": "GPU-1",
            "severity": "Fatal",
            "message": "GPU has fallen off the bus",
            "since": TIME,
            "job": "team/llama",
            "observed": False,
            "releasedTime": TIME,
        }
    ],
    "effect": "tainted",
    "incidents": [
        {
            "time": TIME,
            "state": "Unhealthy",
            "reason": "Xid79",
            "message": "a GPU is lost",
            "bootId": "b-1",
            "takenOutTime": TIME,
            "chargedTo": "agent/Xid79",
            "certain": True,
            "pool": "nvidia.com/gpu NVIDIA-H200",
            "yieldedTime": TIME,
            "clearedTime": TIME,
            "clearedBy": "a new boot",
            "repairEndedTime": TIME,
        }
    ],
    "exclusion": {
        "reason": "Xid79",
        "message": "the GPU has fallen off the bus",
        "cause": "Health",
        "lastChoice": True,
        "evacuate": "Now",
        "goneByTime": TIME,
        "removal": {"announcedBy": "karpenter", "goneByTime": TIME, "final": True},
    },
    "fault": "Xid79: the GPU has fallen off the bus",
    "suspicion": {"followedTime": TIME, "wantsTest": True},
    "offences": {"hardware": "h-1", "score": "1.5", "asOf": TIME},
    "earlierOffences": [{"hardware": "h-0", "score": "0.5", "asOf": TIME}],
    "maintenance": {"stage": "InProgress", "window": "rack-7", "startTime": TIME, "endTime": TIME},
    "nodeUid": "u-1",
    "bootId": "b-1",
}


FULL_REPAIR_SPEC: dict[str, Any] = {
    "node": "node-1.example",
    "nodeUid": "u-1",
    "action": "Reboot",
    "incidentTime": TIME,
    "reason": "Xid79",
    "message": "a GPU is lost",
    "evidence": FULL_HEALTH["findings"],
    "machine": {"systemUuid": "s-1", "gpuModel": "NVIDIA H200", "gpuSerials": ["1650"], "bootId": "b-1"},
}
FULL_REPAIR: dict[str, Any] = {"phase": "Done", "message": "booted"}


def _instance(path: str) -> str:
    """A field's path in a manifest: the first entry of each list."""
    return path.replace("[]", "[0]")


def _wrong(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return "Nonsense"
    return 7 if schema["type"] == "string" else "wrong"


def _wrong_values(kind: str, part: str) -> Iterator[Any]:
    for path, schema in render.leaves(render.object_schema(RESOURCES[kind])["properties"][part], part):
        for bad in [_wrong(schema), *(["yesterday"] if schema.get("format") == "date-time" else [])]:
            yield pytest.param(_instance(path), bad, id=f"{path}={bad if isinstance(bad, str) else 'wrong type'}")


def test_a_full_gang_is_accepted(manifest: Callable[..., Any], apply: Callable[..., Any]) -> None:
    result = apply(manifest("Gang", {"spec": FULL_GANG_SPEC}), "--dry-run=server")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("path", "bad"), list(_wrong_values("Gang", "spec")))
def test_a_gang_with_a_wrong_value_is_refused(
    path: str, bad: Any, manifest: Callable[..., Any], change: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    full = manifest("Gang", {"spec": FULL_GANG_SPEC})
    said = refusal(change(full, {path: bad}))
    assert said, "accepted"
    assert f"{path}: " in said


def test_a_full_account_is_accepted(manifest: Callable[..., Any], apply: Callable[..., Any]) -> None:
    schema = render.object_schema(RESOURCES["EndedJob"])["properties"]["spec"]
    assert list(_every_part(schema, FULL_ENDED_JOB)) == []
    result = apply(manifest("EndedJob", {"spec": FULL_ENDED_JOB}), "--dry-run=server")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("path", "bad"), list(_wrong_values("EndedJob", "spec")))
def test_an_account_with_a_wrong_value_is_refused(
    path: str, bad: Any, manifest: Callable[..., Any], change: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    full = manifest("EndedJob", {"spec": FULL_ENDED_JOB})
    said = refusal(change(full, {path: bad}))
    assert said, "accepted"
    assert f"{path}: " in said


def test_a_full_repair_request_is_accepted(manifest: Callable[..., Any], apply: Callable[..., Any]) -> None:
    schema = render.object_schema(RESOURCES["RepairRequest"])["properties"]["spec"]
    assert list(_every_part(schema, FULL_REPAIR_SPEC)) == []
    result = apply(manifest("RepairRequest", {"spec": FULL_REPAIR_SPEC}), "--dry-run=server")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("path", "bad"), list(_wrong_values("RepairRequest", "spec")))
def test_a_repair_request_with_a_wrong_value_is_refused(
    path: str, bad: Any, manifest: Callable[..., Any], change: Callable[..., Any], refusal: Callable[..., str]
) -> None:
    full = manifest("RepairRequest", {"spec": FULL_REPAIR_SPEC})
    said = refusal(change(full, {path: bad}))
    assert said, "accepted"
    assert f"{path}: " in said


def test_an_account_is_called_by_its_job_and_never_changed(
    manifest: Callable[..., Any], apply: Callable[..., Any]
) -> None:
    result = apply(manifest("EndedJob", {"metadata.name": "another"}), "--dry-run=server")
    assert "each job has one, which is called by the job's uid" in result.stderr
    assert apply(manifest("EndedJob", {"spec.seconds": {"compute": 10}})).returncode == 0
    for path, value in (("spec.failures", 5), ("spec.seconds.compute", 11), ("spec.name", "b")):
        result = apply(manifest("EndedJob", {"spec.seconds": {"compute": 10}, path: value}), "--dry-run=server")
        assert result.returncode != 0
        assert "what has been is not changed: export it, or delete it" in result.stderr


def test_a_repair_request_has_the_name_of_its_node(manifest: Callable[..., Any], apply: Callable[..., Any]) -> None:
    result = apply(manifest("RepairRequest", {"metadata.name": "another"}), "--dry-run=server")
    assert result.returncode != 0
    assert "there is one request for a node at a time, and it has the node's name" in result.stderr


def test_a_map_of_excluded_nodes_holds_times(manifest: Callable[..., Any], apply: Callable[..., Any]) -> None:
    result = apply(manifest("Gang", {"spec.excludedNodes": {"node-2": "tomorrow"}}), "--dry-run=server")
    assert result.returncode != 0
    assert "spec.excludedNodes.node-2" in result.stderr
    assert "must be of type date-time" in result.stderr


@pytest.fixture(scope="module")
def objects(manifest: Callable[..., Any], apply: Callable[..., Any]) -> dict[str, Any]:
    """An object of each kind with a status, by kind."""
    name, made = "status-is-checked", {}
    for kind in FULL:
        also = {"spec.node": name} if kind == "RepairRequest" else {}
        made[kind] = manifest(kind, {"metadata.name": name, **also})
        result = apply(made[kind])
        assert result.returncode == 0, result.stderr
    return made


FULL = {"TrainingJob": FULL_STATUS, "NodeHealth": FULL_HEALTH, "RepairRequest": FULL_REPAIR}


def _every_part(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """The paths of a schema that a value leaves out."""
    if "items" in schema:
        assert value, f"{path} is empty"
        yield from _every_part(schema["items"], value[0], f"{path}[]")
    for name, part in schema.get("properties", {}).items():
        if name in value:
            yield from _every_part(part, value[name], f"{path}.{name}")
        else:
            yield f"{path}.{name}"


class TestStatus:
    """Status is written through its own door."""

    @pytest.mark.parametrize("kind", FULL)
    def test_a_full_one_is_accepted(self, kind: str, tried: Callable[..., Any], objects: dict[str, Any]) -> None:
        schema = render.object_schema(RESOURCES[kind])["properties"]["status"]
        assert list(_every_part(schema, FULL[kind])) == []
        stored, message = tried(objects[kind], status=FULL[kind])
        assert message == ""
        assert FULL[kind].items() <= stored["status"].items()

    @pytest.mark.parametrize(
        ("path", "bad"),
        [
            ("checkpoint.saves", [{"step": step} for step in range(MAX_SAVES + 1)]),
            ("checkpoint.saves[0].bytes", 2**53),
            ("checkpoint.saves[0].freeBytes", -1),
            ("checkpoint.saves[0].stallSeconds", -1),
            ("checkpoint.concerns[0].message", "x" * 513),
            ("checkpoint.concerns", [{"reason": "NoNewCheckpoint", "message": "late", "since": TIME}] * 2),
        ],
        ids=["too many saves", "more bytes than fit", "less than nothing free", "a stall before it", "words", "twice"],
    )
    def test_saving_has_its_bounds(
        self, path: str, bad: Any, tried: Callable[..., Any], objects: dict[str, Any], change: Callable[..., Any]
    ) -> None:
        _, message = tried(objects["TrainingJob"], status=change(FULL_STATUS, {path: bad}))
        assert f"status.{path}" in message

    @pytest.mark.parametrize(
        ("kind", "path", "bad"),
        [
            pytest.param(kind, *case.values, id=f"{kind}: {case.id}")
            for kind in FULL
            for case in _wrong_values(kind, "status")
        ],
    )
    def test_a_wrong_value_is_refused(
        self,
        kind: str,
        path: str,
        bad: Any,
        tried: Callable[..., Any],
        objects: dict[str, Any],
        change: Callable[..., Any],
    ) -> None:
        _, message = tried(objects[kind], status=change({"status": FULL[kind]}, {path: bad})["status"])
        assert f"{path}: " in message

    def test_what_is_asked_for_does_not_change_and_what_is_done_stays_done(
        self, kubectl: Callable[..., Any], manifest: Callable[..., Any], apply: Callable[..., Any]
    ) -> None:
        mine = {"metadata.name": "mine", "spec.node": "mine"}
        assert apply(manifest("RepairRequest", mine)).returncode == 0
        result = apply(manifest("RepairRequest", {**mine, "spec.action": "Replace"}))
        assert "what is asked for does not change: delete the object, and Muster asks again" in result.stderr

        def becomes(phase: str | None) -> Any:
            patch = json.dumps({"status": {"phase": phase}})
            return kubectl("patch", "repairrequest", "mine", "--subresource=status", "--type=merge", "-p", patch)

        for phase in ("InProgress", "Failed", "InProgress", None, "Done"):
            assert becomes(phase).returncode == 0
        for phase in ("InProgress", "Failed", None):
            assert "what is done stays done" in becomes(phase).stderr
