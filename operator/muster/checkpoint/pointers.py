"""Files that tell a framework which checkpoint is its newest, and what it would make of them: pure over what they say.

Megatron-LM goes on from what `latest_checkpointed_iteration.txt` names. It writes that in place; where it finds it empty it
ends with code 0, and where there is none it begins anew (megatron/training/checkpointing.py, `read_metadata`). DeepSpeed
does the same with `latest` (deepspeed/runtime/engine.py, `load_checkpoint`), Composer with a link (`autoresume`).
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Callable, Optional, Sequence, Tuple

from muster.checkpoint.formats.composer import COMPOSER
from muster.checkpoint.formats.deepspeed import DEEPSPEED
from muster.checkpoint.formats.megatron import MEGATRON, MEGATRON_LEGACY, TRACKER
from muster.checkpoint.scan import Checkpoint

MAX_POINTER_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Pointer:
    """One kind of them.

    Attributes:
        framework: who follows it.
        name: in the checkpoint directory.
        formats: of the checkpoints that it names.
        is_link: it names by where it leads; else by what is in it.
        target: the name of a checkpoint by what is in it; "" = it is none.
        text: what has to be in it, by the name of a checkpoint.
        torn: what becomes of a start that finds nothing in it that names a checkpoint.
        missing: the same where there is no such file; "" = that is a user's choice.
    """

    framework: str
    name: str
    formats: Tuple[str, ...]
    is_link: bool
    target: Callable[[str], str]
    text: Callable[[str], str]
    torn: str
    missing: str


def _iteration(text: str) -> str:
    return "iter_%07d" % int(text) if re.match(r"\d{1,15}\Z", text) else ""


POINTERS: Tuple[Pointer, ...] = (
    Pointer(
        framework="Megatron-LM",
        name=TRACKER[3:],
        formats=(MEGATRON.name, MEGATRON_LEGACY.name),
        is_link=False,
        target=_iteration,
        text=lambda name: str(int(name.rpartition("_")[2])),
        torn="end with code 0 as if it had finished",
        missing="begin from scratch",
    ),
    Pointer(
        framework="DeepSpeed",
        name="latest",
        formats=(DEEPSPEED.name,),
        is_link=False,
        target=lambda text: text,
        text=lambda name: name,
        torn="fail to load",
        missing="begin from scratch",
    ),
    Pointer(
        framework="Composer",
        name="latest-rank0.pt",
        formats=(COMPOSER.name,),
        is_link=True,
        target=os.path.basename,
        text=lambda name: name,
        torn="begin from scratch",
        missing="",
    ),
)


def pointer_problem(pointer: Pointer, said: Optional[str], complete: Sequence[Checkpoint]) -> str:
    """What a framework that follows its pointer would do other than go on from the newest, and the remedy; "" = nothing.

    Args:
        said: what is in the file, or where the link leads; None: there is none.
        complete: checkpoints that were found complete, the newest first.
    """
    own = [one for one in complete if one.format in pointer.formats]
    if not own:
        return ""
    names = [os.path.basename(one.path) for one in own]
    remedy = "Let it lead to %s" if pointer.is_link else "Write %s into it"
    remedy %= pointer.text(names[0])
    if said is None:
        if not pointer.missing:
            return ""
        return "there is no %s: %s by itself would %s. %s" % (pointer.name, pointer.framework, pointer.missing, remedy)
    target = pointer.target(said.strip())
    if not target:
        return "%s names no checkpoint: %s would %s. %s" % (pointer.name, pointer.framework, pointer.torn, remedy)
    if target not in names:
        return "%s names %s, which is none of the newest complete ones: %s would go on from it. %s" % (
            pointer.name,
            target,
            pointer.framework,
            remedy,
        )
    if target != names[0] and own[names.index(target)].step < own[0].step:
        return "%s names %s: %s would go on from there and not from %s. %s" % (
            pointer.name,
            target,
            pointer.framework,
            names[0],
            remedy,
        )
    return ""
