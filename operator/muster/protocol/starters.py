"""Programs that start a process for each GPU of a node by themselves, recognised in a command.

Sources: torch.distributed.run (options and PET_ variables), accelerate/commands/launch.py, composer/cli/launcher.py,
deepspeed/launcher/runner.py.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

TORCHRUN = "torchrun"
ACCELERATE = "accelerate"
COMPOSER = "composer"
DEEPSPEED = "deepspeed"

_NAMES = {
    "torchrun": TORCHRUN,
    "torch.distributed.run": TORCHRUN,
    "torch.distributed.launch": TORCHRUN,
    "accelerate": ACCELERATE,
    "accelerate.commands.launch": ACCELERATE,
    "composer": COMPOSER,
    "composer.cli.launcher": COMPOSER,
    "deepspeed": DEEPSPEED,
    "deepspeed.launcher.runner": DEEPSPEED,
}


def starter_of(command: Sequence[str]) -> str:
    """TORCHRUN, ACCELERATE, COMPOSER or DEEPSPEED; "" for a program that starts none, and where a shell hides it."""
    for word in command:
        name = _NAMES.get(word.rsplit("/", 1)[-1])
        if name:
            return name
        if word.endswith(".py") or " " in word:
            return ""
    return ""


def option(command: Sequence[str], *names: str) -> Optional[str]:
    """The value of the first of these options that is given, written `--a=1` or `--a 1`; "" for one that has none; None: not given."""
    for place, word in enumerate(command):
        if word.endswith(".py"):
            return None  # what follows are the options of that program
        name, sign, value = word.partition("=")
        if name.replace("_", "-") in names:
            return value if sign else "".join(command[place + 1 : place + 2])
    return None


__all__: List[str] = ["ACCELERATE", "COMPOSER", "DEEPSPEED", "TORCHRUN", "option", "starter_of"]
