"""Describes how often nodes fail, and of what: published figures, and a user's own.

Tests: tests/unit/whatif/test_recovery_model.py.
"""

import re
from collections.abc import Mapping, Sequence

from pydantic import Field

from muster.api.base import ApiModel
from muster.whatif.recovery_model import CRASH, HANG, SILENT, SymptomError, severity_of_evidence

PUBLISHED_GPUS_PER_NODE = 8
_CAUSE = re.compile(r"(?P<name>[^=]+)=(?P<share>[0-9]*\.?[0-9]+):(?P<symptom>\w+)")


class Cause(ApiModel):
    """One cause of failures, with its share and the way in which it shows."""

    name: str
    share: float = Field(gt=0, description="How many of all failures, in any unit.")
    symptom: str = Field(
        description="How it shows: Crash, Hang, Silent, or the evidence of the node agent, e.g. Xid79."
    )


class Rates(ApiModel):
    """How often one node fails, and from which causes."""

    name: str
    source: str = Field(description="Where it comes from, for people.")
    mttf_days: float = Field(gt=0, description="Mean time between two failures of one node.")
    causes: list[Cause] = Field(min_length=1)


class RatesError(ValueError):
    """The rates make no sense; the message says what to write."""


LLAMA3 = Rates(
    name="llama3",
    source="Llama 3: 419 unexpected interruptions in 54 days on 16,384 H100",
    mttf_days=54 * 2048 / 419,
    # The paper's table of causes, grouped by how they show. The node's agent sees the loss of a network port. Wrong
    # results without any sign count as a crash at the moment at which they begin.
    causes=[
        Cause(name="GPU", share=148 + 19 + 17 + 6, symptom="Xid79"),  # faulty, SRAM, system processor, thermal
        Cause(name="HBM3 memory", share=72, symptom="Xid48"),
        Cause(name="software", share=54 + 2, symptom=CRASH),  # bugs, dependencies
        Cause(name="network", share=35 + 7, symptom="IbPortDown"),  # switch and cable, NIC
        Cause(name="host maintenance", share=32, symptom=SILENT),
        # SSD, power, chassis, IO, CPU, memory
        Cause(name="host hardware", share=3 + 3 + 2 + 2 + 2 + 2, symptom=SILENT),
        Cause(name="NCCL watchdog", share=7, symptom=HANG),
        Cause(name="silent corruption", share=6, symptom=CRASH),
    ],
)
FT_HSDP = Rates(
    name="ft-hsdp",
    source="FT-HSDP (Meta): 678 failures on 32,768 H100, 2.3 in 1,000 node-days",
    mttf_days=1000 / 2.3,
    causes=[
        Cause(name="HBM and SRAM", share=22.9 + 1.2, symptom="Xid48"),
        Cause(name="PCIe", share=18.0, symptom="Xid79"),
        Cause(name="NCCL watchdog", share=9.0, symptom=HANG),
        Cause(name="GPU compute", share=7.4, symptom="Xid95"),
        Cause(name="software", share=7.1 + 1.0, symptom=CRASH),
        Cause(name="host maintenance", share=6.2 + 5.6, symptom=SILENT),  # and reboots
        Cause(name="kernel", share=5.8, symptom=SILENT),
        Cause(name="silent corruption", share=5.5, symptom=CRASH),
        Cause(name="network", share=5.3, symptom="IbPortDown"),
        Cause(name="SSD", share=4.4, symptom="DiskError"),
    ],
)
PUBLISHED: Mapping[str, Rates] = {rates.name: rates for rates in (LLAMA3, FT_HSDP)}


def of_nodes(rates: Rates, gpus_per_node: int) -> Rates:
    """Return the published rates for nodes with another number of GPUs: a node fails as often as its GPUs do."""
    return rates.model_copy(update={"mttf_days": rates.mttf_days * PUBLISHED_GPUS_PER_NODE / gpus_per_node})


def causes_from(texts: Sequence[str]) -> list[Cause]:
    """Parse causes from a command line, each as `NAME=SHARE:SYMPTOM`.

    Raises:
        RatesError: one of the texts cannot be read.
    """
    causes = []
    for text in texts:
        match = _CAUSE.fullmatch(text.strip())
        if match is None or not float(match["share"]) > 0:
            raise RatesError(f"{text!r}: write NAME=SHARE:SYMPTOM, for example GPU=60:Xid79 or software=13:{CRASH}")
        try:
            severity_of_evidence(match["symptom"])
        except SymptomError as error:
            raise RatesError(f"{text!r}: {error}") from error
        causes.append(Cause(name=match["name"].strip(), share=float(match["share"]), symptom=match["symptom"]))
    names = [cause.name for cause in causes]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise RatesError(f"{twice} is given twice: add the two shares up, or give one another name")
    return causes
