"""Composer: one file `ep1-ba500-rank0.pt`, of rank 0 (composer/utils/checkpoint.py, `_save_checkpoint`).

It is written in place. Sharded ones are PyTorch DCP, in `ep1-ba500/`.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.whole import archive_problem, pickled

_NAME = re.compile(r"(?:.*[-_.])?ep\d{1,9}-ba\d{1,15}-rank0\.pt\Z")  # `{run_name}-` before it is people's own


def _has_optimizer(candidate: Candidate, name: str) -> bool:
    return pickled(candidate, name).mentions("optimizers")


def _problem(candidate: Candidate) -> str:
    problem = candidate.remembered(candidate.name, archive_problem)
    if not problem and not candidate.remembered(candidate.name, _has_optimizer):
        return WEIGHTS_ONLY
    return problem


COMPOSER = Format(
    "Composer",
    Words(
        written_by="Composer",
        place="a file `ep1-ba500-rank0.pt`, also with something before it",
        step="the batch in the name",
        complete="the archive has its end. `save_weights_only` leaves weights only",
    ),
    (),
    _problem,
    claims=lambda name: name.endswith(".pt") and _NAME.match(name) is not None,
    settles=True,
)
