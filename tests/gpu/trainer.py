"""Trains some linear layers on a GPU with NCCL, bit for bit repeatable: `python trainer.py STEPS [hang STEP | fork]`.

`hang STEP` starts a kernel that does not end in that step. `fork` leaves a process behind that holds GPU memory and
has left its session. Checkpoints are PyTorch's (torch.distributed.checkpoint), of 4.3 GB, every 20 steps, in
MUSTER_CHECKPOINT_DIRECTORY/step-N, of which three stay; at the end OUT_FILE gets a digest of the weights.
"""

# mypy: disable-error-code="import-not-found"
import hashlib
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

LAYERS, WIDTH, TOKENS, SAVE_EVERY, KEPT = 16, 8192, 8192, 20, 3
PINNED_BYTES = 4 * 2**30
ENDLESS_CYCLES = 2**62


def main(steps: int, fault: str = "", at: str = "0") -> None:
    import torch
    import torch.distributed.checkpoint as dcp

    torch.set_deterministic_debug_mode("error")
    torch.cuda.set_device(0)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda:0"))
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        *(torch.nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS))
    )
    momentum = [torch.zeros_like(parameter) for parameter in model.parameters()]
    pinned = torch.empty(PINNED_BYTES, dtype=torch.uint8, pin_memory=True)  # as loaders have it; slow to give back
    state: dict[str, Any] = {"model": model.state_dict(), "momentum": momentum, "step": 0}
    if os.environ.get("MUSTER_RESUME_PATH"):
        dcp.load(state, checkpoint_id=os.environ["MUSTER_RESUME_PATH"])
        assert state["step"] == int(os.environ["MUSTER_RESUME_STEP"])
    if fault == "fork" and os.environ["MUSTER_ATTEMPT"] == "1" and os.fork() == 0:
        os.setsid()
        time.sleep(600)
    directory = Path(os.environ["MUSTER_CHECKPOINT_DIRECTORY"])
    for step in range(state["step"] + 1, steps + 1):
        if fault == "hang" and step == int(at) and os.environ["MUSTER_ATTEMPT"] == "1":
            torch.cuda._sleep(ENDLESS_CYCLES)
        generator = torch.Generator(device="cuda").manual_seed(step)
        batch = torch.randn(TOKENS, WIDTH, generator=generator, device="cuda").to(torch.bfloat16)
        loss = model(batch).float().square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter, moved in zip(model.parameters(), momentum, strict=True):
                torch.distributed.all_reduce(parameter.grad)
                moved.mul_(0.9).add_(parameter.grad)
                parameter.sub_(moved, alpha=1e-3)
                parameter.grad = None
        with Path(os.environ["MUSTER_PROGRESS"]).open("a", encoding="utf-8") as progress:
            progress.write(json.dumps({"step": step, "loss": float(loss)}) + "\n")
        if step % SAVE_EVERY == 0:
            state["step"] = step
            dcp.save(state, checkpoint_id=str(directory / f"step-{step}"))
            old = directory / f"step-{step - KEPT * SAVE_EVERY}"
            (old / ".metadata").unlink(missing_ok=True)
            shutil.rmtree(old, ignore_errors=True)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().view(torch.int16).numpy().tobytes())
    Path(os.environ["OUT_FILE"]).write_text(digest.hexdigest(), encoding="utf-8")
    del pinned
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
