"""Files by which a framework finds its newest checkpoint, and what it would do with them: pure functions of their text.

Megatron-LM goes on from what `latest_checkpointed_iteration.txt` names, and writes that file in place. An empty file
ends it with code 0, and without the file it begins anew. Where the file says `release`, it begins with the weights that
lie there (megatron/training/checkpointing.py, `read_metadata`). Others work alike:

- DeepSpeed by `latest`, or `latest_universal` (deepspeed/runtime/engine.py, `load_checkpoint`)
- Composer by a link (`autoresume`)
- DLRover by a file of its own (full_ckpt_engine.py, `_load_from_storage`)
- verl (verl/utils/checkpoint/checkpoint_manager.py, `find_latest_ckpt_path`) and SkyRL (skyrl/train/trainer.py,
  `load_checkpoints`) by a file with a number; EasyR1 (`find_latest_ckpt`) by a number in a JSON file
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Callable, NamedTuple, Optional, Pattern, Sequence, Tuple

from muster.node.checkpoint.dcp import FLASH_TRACKER
from muster.node.checkpoint.formats.composer import COMPOSER
from muster.node.checkpoint.formats.deepspeed import DEEPSPEED, DEEPSPEED_UNIVERSAL
from muster.node.checkpoint.formats.dlrover import DLROVER, is_step
from muster.node.checkpoint.formats.megatron import MEGATRON, MEGATRON_LEGACY, TRACKER
from muster.node.checkpoint.formats.torch_dcp import TORCH_DCP
from muster.node.checkpoint.formats.verl import EASY_R1, EASY_R1_STEP, EASY_R1_TRACKER, SKYRL, SKYRL_TRACKER, VERL
from muster.node.checkpoint.untrusted_json import parse_json
from muster.protocol.checkpoint_names import readable
from muster.protocol.checkpoints import FoundCheckpoint

_MAX_TOLD_CHARS = 64


@dataclasses.dataclass(frozen=True)
class Pointer:
    """One kind of file or link that names a framework's newest checkpoint.

    Attributes:
        framework: the framework that follows it.
        name: the file's name in the checkpoint directory.
        formats: of the checkpoints that it names.
        called: pattern of these checkpoints' names, where others write that format, too.
        is_link: whether it names a checkpoint by where it leads; else by its text.
        target: the name of a checkpoint by the pointer's text; "" = the text names none.
        text: the text that names a checkpoint, by the checkpoint's name.
        consequence: what a start does that finds no checkpoint's name in it.
        missing: what a start does that finds no such file; "" = that is a user's choice.
        anew: the name of weights that a start begins from at step 0; "" = there are none.
    """

    framework: str
    name: str
    formats: Tuple[str, ...]
    is_link: bool
    target: Callable[[str], str]
    text: Callable[[str], str]
    consequence: str
    missing: str
    anew: str = ""
    called: Pattern[str] = re.compile("")

    def is_for(self, checkpoint: FoundCheckpoint) -> bool:
        """Whether the pointer may name this checkpoint."""
        return checkpoint.format in self.formats and bool(self.called.search(os.path.basename(checkpoint.path)))


def _iteration(text: str) -> str:
    return "iter_%07d" % int(text) if re.match(r"\d{1,15}\Z", text) else ""


def _global_step(text: str) -> str:
    return "global_step_%d" % int(text) if re.match(r"\d{1,15}\Z", text) else ""


def _step_digits(name: str) -> str:
    return name.rpartition("_")[2]


def _tracker_of_easy_r1(name: str) -> str:
    return '{"%s": %s}' % (EASY_R1_STEP, _step_digits(name))


def _global_step_of_easy_r1(text: str) -> str:
    try:
        document = parse_json(text.encode())
    except ValueError:
        return ""
    return _global_step(str(document.get(EASY_R1_STEP))) if isinstance(document, dict) else ""


POINTERS: Tuple[Pointer, ...] = (
    Pointer(
        framework="Megatron-LM",
        name=TRACKER[3:],
        formats=(MEGATRON.name, MEGATRON_LEGACY.name),
        is_link=False,
        target=_iteration,
        text=lambda name: str(int(name.rpartition("_")[2])),
        consequence="end with code 0 as if it had finished",
        missing="begin from scratch",
        anew="release",
    ),
    Pointer(
        framework="DeepSpeed",
        name="latest",
        formats=(DEEPSPEED.name,),
        is_link=False,
        target=lambda text: text,
        text=lambda name: name,
        consequence="fail to load",
        missing="begin from scratch",
    ),
    Pointer(
        framework="DeepSpeed (load_universal)",
        name="latest_universal",
        formats=(DEEPSPEED_UNIVERSAL.name,),
        is_link=False,
        target=lambda text: text,
        text=lambda name: name,
        consequence="fail to load",
        missing="",
    ),
    Pointer(
        framework="Composer",
        name="latest-rank0.pt",
        formats=(COMPOSER.name, TORCH_DCP.name),  # the latter of sharded ranks
        called=re.compile(r"ep\d+-ba\d+"),
        is_link=True,
        target=os.path.basename,
        text=lambda name: name,
        consequence="begin from scratch",
        missing="",
    ),
    Pointer(
        framework="DLRover",
        name=FLASH_TRACKER[3:],
        formats=(DLROVER.name,),
        is_link=False,
        target=lambda text: text if is_step(text) else "",
        text=lambda name: name,
        consequence="begin from scratch",
        missing="begin from scratch",
    ),
    *(
        Pointer(
            framework=framework,
            name=name,
            formats=(framework,),
            is_link=False,
            target=target,
            text=text,
            consequence="fail to load",
            missing="begin from scratch",
        )
        for framework, name, target, text in (
            (VERL.name, TRACKER[3:], _global_step, _step_digits),
            (SKYRL.name, SKYRL_TRACKER[3:], _global_step, _step_digits),
            (EASY_R1.name, EASY_R1_TRACKER[3:], _global_step_of_easy_r1, _tracker_of_easy_r1),
        )
    ),
)


class Problem(NamedTuple):
    """The problem that a framework follows its pointer to something other than the newest checkpoint.

    Attributes:
        words: what the framework would do, and the remedy.
        is_trap: whether it would begin from scratch, end, or load what is incomplete or gone; else it would resume from
            an
        older checkpoint.
    """

    words: str
    is_trap: bool


def pointer_problem(
    pointer: Pointer,
    content: Optional[str],
    complete: Sequence[FoundCheckpoint],
    is_whole: Callable[[str], bool],
    incomplete: Sequence[FoundCheckpoint] = (),
    *,
    is_own: bool = True,
) -> Optional[Problem]:
    """The problem of a pointer; None where it names the newest checkpoint, or a user's choice.

    Args:
        pointer: how its framework writes and follows it.
        content: the text in the file, or the target of the link; None = there is none.
        complete: checkpoints that were found complete, the newest first.
        is_whole: whether there is something of this name that is not known to be incomplete.
        incomplete: checkpoints that were cut short. Where none is complete, such a one was the first that was saved.
        is_own: whether the pointer lies in the directory. A link may lead to any file of the container: no message
            repeats what is in it.
    """
    own = list(filter(pointer.is_for, complete))
    if not own:
        return None if complete else _of_a_first_save(pointer, content, incomplete)
    names = [os.path.basename(checkpoint.path) for checkpoint in own]
    remedy = "Let it lead to %s" if pointer.is_link else "Write %s into it"
    remedy %= pointer.text(names[0])
    if content is None:
        if not pointer.missing:
            return None
        would = "%s by itself would %s. %s" % (pointer.framework, pointer.missing, remedy)
        return Problem("there is no %s: %s" % (pointer.name, would), is_trap=True)
    if pointer.anew and content.strip() == pointer.anew:
        would = "%s would begin at step 0 with those weights, and a new optimizer. %s" % (pointer.framework, remedy)
        return Problem("%s names %s: %s" % (pointer.name, pointer.anew, would), is_trap=True)
    target = pointer.target(content.strip())
    if not target:
        would = "%s would %s. %s" % (pointer.framework, pointer.consequence, remedy)
        return Problem("%s names no checkpoint: %s" % (pointer.name, would), is_trap=True)
    if target not in names:
        which = "%s names %s, which is none of the newest complete ones" % (
            pointer.name,
            readable(target[:_MAX_TOLD_CHARS]) if is_own or pointer.is_link else "something",
        )
        words = "%s: %s would go on from it. %s" % (which, pointer.framework, remedy)
        return Problem(words, is_trap=not is_whole(target))
    if target != names[0] and own[names.index(target)].step < own[0].step:
        which = "%s names %s: %s would go on from there" % (pointer.name, target, pointer.framework)
        return Problem("%s and not from %s. %s" % (which, names[0], remedy), is_trap=False)
    return None


def _of_a_first_save(
    pointer: Pointer, content: Optional[str], incomplete: Sequence[FoundCheckpoint]
) -> Optional[Problem]:
    """The problem of a pointer to an incomplete checkpoint where no complete one exists; None = there is no problem.

    DeepSpeed's rank 0 may have written `latest` when the others were cut short.
    """
    target = pointer.target((content or "").strip())
    names = {os.path.basename(checkpoint.path) for checkpoint in filter(pointer.is_for, incomplete)}
    if target not in names:
        return None
    would = "%s would fail to load it. Remove %s, and it begins from scratch" % (pointer.framework, pointer.name)
    return Problem("%s names %s, which is not complete: %s" % (pointer.name, target, would), is_trap=True)
