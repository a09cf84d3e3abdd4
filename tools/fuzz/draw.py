"""Draws the inputs of a round from its seed."""

import functools
import itertools
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from fuzz import samples
from fuzz.inputs import CHECK, REPORT, REQUEST, TOKEN, Input, Round, Sender
from fuzz.mutate import mutated, mutated_bytes
from fuzz.samples import Family
from muster.protocol.messages import REPORT_PATH
from simulate.apiserver import Object, training_job

SECONDS = 60.0  # in which all of it comes
FAMILIES = 8
NEW_JOBS = 12
NODES = 8
CHECKED_NODES = ("f0", "f1", "n0", "gone")  # one under the job that trains, one that nobody has
REPORTS_OF_POD = 10
REPORT_EVERY_SECONDS = 4.0  # a report rests its pod for a moment, by the time that it has cost
POLICY_SHARE = 0.2  # of the rounds: a policy is everybody's


def drawn(seed: int) -> Round:
    """The round of a seed: some 500 inputs."""
    chance = Random(seed)
    inputs = [*_fleet(chance)]
    settled = [chance.choice(samples.families()).settled_as(number) for number in range(FAMILIES)]
    for family in settled:
        inputs += _family(chance, family)
    inputs += _new_jobs(chance)
    if chance.random() < POLICY_SHARE:
        inputs += [
            _input(chance, at, "FleetPolicy", samples.FLEET_POLICY)
            for at in (*_times(chance, 10), *_times(chance, 10, 5.0))
        ]
    inputs += itertools.chain.from_iterable(_checked(chance, node) for node in CHECKED_NODES)
    return Round(seed, sorted(inputs, key=lambda one: one.at))


def _times(chance: Random, count: int, begin: float = 0.0) -> list[float]:
    return [round(chance.uniform(begin, SECONDS), 2) for _ in range(count)]


def _input(chance: Random, at: float, kind: str, sample: Object, others: Sequence[Any] = ()) -> Input:
    builtin = kind in ("Node", "Pod", "Lease", "PriorityClass")
    return Input(at, kind, mutated(sample, chance, others, builtin=builtin))


def _fleet(chance: Random) -> Iterator[Input]:
    """Nodes, with what speaks of them and what stands on them."""
    for number in range(NODES):
        name = f"f{number}"
        for kind, sample in (("Node", _plain_node()), ("Lease", samples.LEASE)):
            yield Input(0.0, kind, _called(sample, name), mutated=False)
        for kind, sample, count in (
            ("Node", samples.NODE, 6),
            ("NodeHealth", samples.NODE_HEALTH, 6),
            ("Lease", samples.LEASE, 1),
        ):
            for at in _times(chance, count):
                yield _input(chance, at, kind, _called(sample, name))
    for at in _times(chance, 4):
        yield _input(chance, at, "PriorityClass", samples.PRIORITY_CLASS)
    for number, at in enumerate(_times(chance, 24)):
        place = samples.namespace(number % FAMILIES)
        pod = {
            **samples.OCCUPANT,
            "metadata": {**samples.OCCUPANT["metadata"], "namespace": place, "uid": f"web-{place}"},
        }
        node = chance.choice((f"f{number % NODES}", "n0", "n3", "gone"))
        yield _input(chance, at, "Pod", {**pod, "spec": {**pod["spec"], "nodeName": node}})


@functools.cache
def _plain_node() -> Object:
    """One that nothing is known against, so that jobs are placed there."""
    status = {**samples.NODE_STATUS, "conditions": samples.NODE_STATUS["conditions"][:1]}
    return {**samples.NODE, "spec": {}, "status": status}


def _called(sample: Object, name: str) -> Object:
    metadata = {**sample["metadata"], "name": name, "uid": f"{sample['metadata']['uid'][:-2]}{name}"}
    return {**sample, "metadata": metadata}


def _family(chance: Random, family: Family) -> Iterator[Input]:
    begin = round(chance.uniform(1.0, 20.0), 2)
    objects = [
        ("TrainingJob", family.job),
        *(("Gang", gang) for gang in [family.gang] if gang),
        *(("Pod", p) for p in family.pods),
    ]
    others = {"TrainingJob": _jobs(), "Gang": _gangs(), "Pod": _pods()}
    for kind, sample in objects:
        at = round(begin + chance.uniform(0, 2.0), 2)
        if chance.random() < 0.4:
            yield _input(chance, at, kind, sample, others[kind])
        else:
            yield Input(at, kind, sample, mutated=False)
    for _ in range(8):
        kind, sample = chance.choice(objects[:2] * 2 + objects)
        yield _input(chance, round(chance.uniform(begin + 2.0, SECONDS), 2), kind, sample, others[kind])
    for pod in family.pods:
        yield from _said(chance, pod, family.reports, begin + 2.5)


def _said(chance: Random, pod: Object, reports: dict[str, Object], begin: float) -> Iterator[Input]:
    metadata = pod["metadata"]
    sender = Sender(metadata["namespace"], metadata["name"], metadata["uid"], pod["spec"].get("nodeName") or "f0")
    said = reports.get(sender.uid) or chance.choice(_reports())
    first = begin + chance.uniform(0, 3.0)
    for number in range(REPORTS_OF_POD):
        at = round(first + number * REPORT_EVERY_SECONDS, 2)
        report = {**said, "sequence": 1000 + number, "holdSeconds": chance.choice((0, 0, 5.0))}
        draw = chance.random()
        if draw < 0.1:
            yield Input(at, REPORT, report, sender=sender, mutated=False)
        elif draw < 0.5:
            yield Input(at, REPORT, mutated(report, chance, _reports(), raw=True), sender=sender)
        elif draw < 0.65:
            data = mutated_bytes(msgspec.json.encode(report), chance)
            yield Input(at, REPORT, data=data.decode("latin-1"), sender=sender)
        else:
            data = mutated_bytes(_request(report), chance)
            yield Input(at, REQUEST, data=data.decode("latin-1"), sender=sender)


def _checked(chance: Random, node: str) -> Iterator[Input]:
    """What a checker says, or somebody who is none."""
    account = "muster-check" if chance.random() < 0.9 else "default"
    sender = Sender("muster-check", f"checker-{node}", f"checker-{node}", node, account)
    first = chance.uniform(1.0, 5.0)
    for number in range(REPORTS_OF_POD):
        at = round(first + number * REPORT_EVERY_SECONDS, 2)
        report = {**samples.CHECK_REPORT, "sequence": 1 + number, "holdSeconds": chance.choice((0, 0, 5.0))}
        draw = chance.random()
        if draw < 0.2:
            yield Input(at, CHECK, report, sender=sender, mutated=False)
        elif draw < 0.8:
            yield Input(at, CHECK, mutated(report, chance, [samples.CHECK_REPORT], raw=True), sender=sender)
        else:
            data = mutated_bytes(msgspec.json.encode(report), chance)
            yield Input(at, CHECK, data=data.decode("latin-1"), sender=sender)


def _request(report: Object) -> bytes:
    body = msgspec.json.encode(report)
    head = f"POST {REPORT_PATH} HTTP/1.1\r\nHost: coordinator:8443\r\nAuthorization: Bearer {TOKEN}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _new_jobs(chance: Random) -> Iterator[Input]:
    """Jobs that nothing has been done for yet."""
    for number, at in zip(itertools.count(), _times(chance, NEW_JOBS), strict=False):
        name = f"j{number}"
        job = training_job(name, samples.namespace(number % FAMILIES), samples.JOB_SPEC)
        job["metadata"] |= {"uid": f"new-{number}", "generation": 1, "creationTimestamp": "2026-01-01T00:00:10Z"}
        if chance.random() < 0.6:
            # Called otherwise, since its metadata are no object's, and have any shape.
            strange = mutated({"of": samples.TEMPLATE, **samples.TEMPLATE["spec"]}, chance, builtin=False)
            template = {**samples.TEMPLATE, "spec": {k: v for k, v in strange.items() if k != "of"}}
            if chance.random() < 0.3:
                template = strange.get("of")
            yield Input(at, "Template", {**job, "spec": {**job["spec"], "template": template, "checkpoint": {}}})
        else:
            yield _input(chance, at, "TrainingJob", job, _jobs())


@functools.cache
def _jobs() -> list[Object]:
    return [training_job("j", "n", samples.JOB_SPEC), *(family.job for family in samples.families())]


@functools.cache
def _gangs() -> list[Object]:
    return [family.gang for family in samples.families() if family.gang is not None]


@functools.cache
def _pods() -> list[Object]:
    return [pod for family in samples.families() for pod in family.pods]


@functools.cache
def _reports() -> list[Object]:
    return [report for family in samples.families() for report in family.reports.values()]
