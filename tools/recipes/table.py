"""The examples that are run, and the image of each."""

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
