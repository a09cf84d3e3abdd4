"""What every format defines: how it is recognized, which step it holds, and whether all of it is there.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, NamedTuple, Optional, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.listing import MAX_DEPTH
from muster.node.checkpoint.untrusted_json import parse_json
from muster.protocol.checkpoint_names import step_in_name

NO_OPTIMIZER = "there are no optimizer states"  # of a save that is under way, or of weights alone: nothing tells
WEIGHTS_ONLY = "there are weights only: a trainer cannot resume from them with the same optimizer"


def json_object(candidate: Candidate, name: str) -> "dict[str, Any]":
    """The object in a small JSON file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is incomplete, or contains no object.
    """
    try:
        document = parse_json(candidate.document(name))
    except ValueError as error:
        raise ValueError("%s is incomplete: %s" % (name, error)) from error
    if not isinstance(document, dict):
        raise ValueError("%s is no JSON object" % name)  # noqa: TRY004 - the file is wrong, not the caller
    return document


class Words(NamedTuple):
    """The text about a format in docs/reference/checkpoints.md.

    Attributes:
        written_by: the frameworks that write it.
        place: the path below the checkpoint directory.
        step: where the step is read.
        complete: what has to be there.
    """

    written_by: str
    place: str
    step: str
    complete: str


@dataclasses.dataclass(frozen=True)
class Format:
    """One way in which checkpoints are written.

    `step` and `problem` may raise ValueError: a file is not what it should be; the message says what is wrong.

    Attributes:
        name: for people.
        markers: file names; the first that is there makes a directory a checkpoint of this format. The marker's time is
        when the checkpoint was written, so it is a file that is written late and once.
        problem: why not all of it is there, or no rank can resume from it; "" = complete. Asked with all files listed.
        step: the step of the checkpoint; None = not known. Asked before anything was listed but the marker.
        claims: whether a directory of this name may be one; without markers: a file. Asked of every name, of which
        there may be a million that are none: what is cheap to see comes first.
        unless: names of files beside the marker that another framework writes: with one of them it is not of this
        format.
        beside: by the checkpoint's name, a file outside of it on which it depends (`../latest`); "" = none. A single
        file without it is of no known format.
        hides_step: whether no number in a name of this kind orders it among others: its step is in the file alone.
        made_of: the format from which people convert checkpoints into this one. Beside a checkpoint of that format with
        the same step, this one does not count. "" = none.
        settles: whether no marker appears atomically. Then a checkpoint is complete once two looks, SETTLE_SECONDS
            apart,
        have found the same files.
        is_open: whether nothing in it names all files that belong to it, or tells how many these are. Then it is not
        complete once there is less of it than there was, and nothing newer.
        is_named_by_job: whether the job says what its checkpoints are called: then they count, whatever a name says.
        depth: the levels of directories whose files belong to it, itself included.
    """

    name: str
    words: Words
    markers: Tuple[str, ...]
    problem: Callable[[Candidate], str]
    step: Callable[[Candidate], Optional[int]] = lambda candidate: step_in_name(candidate.name)
    claims: Callable[[str], bool] = lambda name: True
    unless: Tuple[str, ...] = ()
    beside: Callable[[str], str] = lambda name: ""
    hides_step: Callable[[str], bool] = lambda name: False
    made_of: str = ""
    settles: bool = False
    is_open: bool = False
    is_named_by_job: bool = False
    depth: int = MAX_DEPTH
