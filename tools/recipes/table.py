"""The examples that are run, the image of each, and what the options of its program are called."""

TORCH, FRAMEWORKS = "torch-ddp", "recipes"

RECIPES = {
    "torchrun-ddp": TORCH,
    "torch-save": TORCH,
    "torch-fsdp2": TORCH,
    "hf-trainer": FRAMEWORKS,
    "accelerate": FRAMEWORKS,
    "lightning": FRAMEWORKS,
    "deepspeed": FRAMEWORKS,
    "jax-orbax": FRAMEWORKS,
}

SAVE_EVERY, PAUSE = "save_every", "pause"  # steps between two checkpoints; seconds of each step
_OPTIONS = {
    "hf-trainer": {SAVE_EVERY: "--save_steps", PAUSE: "--pause_seconds"},
    "accelerate": {SAVE_EVERY: "--checkpointing_steps", PAUSE: "--pause_seconds"},
}


def options_of(name: str) -> dict[str, str]:
    """What the program of a recipe calls the options `SAVE_EVERY` and `PAUSE`."""
    return _OPTIONS.get(name, {SAVE_EVERY: "--save-every", PAUSE: "--pause-seconds"})
