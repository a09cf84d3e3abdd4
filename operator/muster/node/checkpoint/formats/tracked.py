"""Single files of `torch.save` beside which another file is written once they are whole.

- fvcore's PeriodicCheckpointer, and Detectron2 with it: fvcore/common/checkpoint.py (`save`, `tag_last_checkpoint`)
- MMEngine: mmengine/hooks/checkpoint_hook.py (`_save_checkpoint`, `_save_checkpoint_with_step`)
- fairseq: fairseq/checkpoint_utils.py (`save_checkpoint`): the first of several names is written, and copied

Without that other file nothing tells them from the files of any program.

Tests: tests/unit/reports/test_trees.py.
"""

from __future__ import annotations

import re

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.whole import archive_problem, pickled

_TRACKER = "last_checkpoint"  # names a file, or its path
_TRACKED = re.compile(r"(model|iter|epoch)_(\d{1,15})\.pth\Z")
_COPY = "checkpoint_last.pt"
_COPIED = re.compile(r"checkpoint_\d{1,15}_\d{1,15}\.pt\Z")  # the epoch and the update


def _file_problem(candidate: Candidate) -> str:
    """Why the file is not whole, or has no state of an optimizer; "" = it is, and has one."""
    problem = candidate.remembered(candidate.name, archive_problem)
    return problem or ("" if candidate.remembered(candidate.name, _has_optimizer) else WEIGHTS_ONLY)


def _has_optimizer(candidate: Candidate, name: str) -> bool:
    states = pickled(candidate, name)
    return states.has("last_optimizer_state" if _COPIED.match(name) else "optimizer")


def _tracked_problem(candidate: Candidate) -> str:
    problem = candidate.remembered(candidate.name, archive_problem)
    if problem:
        return problem
    if _TRACKER not in candidate.files:
        return "%s does not exist" % _TRACKER
    own, tracked = _TRACKED.match(candidate.name), candidate.text(_TRACKER).rpartition("/")[2]
    named = _TRACKED.match(tracked)
    # The last file of a run is called model_final.pth.
    is_later = named is not None and own is not None and named[1] == own[1] and int(named[2]) >= int(own[2])
    if not is_later and tracked != "model_final.pth":
        return "%s names %s: this one was not said to be written yet" % (_TRACKER, tracked)
    return _file_problem(candidate)


LAST_CHECKPOINT = Format(
    "LastCheckpoint",
    Words(
        written_by="Detectron2 and others with fvcore's `PeriodicCheckpointer`, MMEngine",
        place="a file `model_0000499.pth`, `iter_500.pth` or `epoch_3.pth` with `last_checkpoint` beside it",
        step="the number of the iteration or the epoch in the name",
        complete="the archive has its end, and `last_checkpoint` names this file, a later one or `model_final.pth`. "
        "Without an optimizer it holds weights only",
    ),
    (),
    _tracked_problem,
    claims=lambda name: name.endswith(".pth") and _TRACKED.match(name) is not None,
    beside=lambda name: _TRACKER,
    settles=True,
)
FAIRSEQ = Format(
    "fairseq",
    Words(
        written_by="fairseq",
        place="a file `checkpoint_1_500.pt` with `checkpoint_last.pt` beside it",
        step="the number of the update, the last in the name",
        complete="the archive has its end. `--no-save-optimizer-state` leaves weights only. What ranks save for "
        "themselves, as with `--use-sharded-state`, and `checkpoint3.pt` of an epoch are not known",
    ),
    (),
    _file_problem,
    claims=lambda name: name.endswith(".pt") and _COPIED.match(name) is not None,
    beside=lambda name: _COPY,
    settles=True,
)
