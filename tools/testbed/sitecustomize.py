"""Makes a checker's probes as bad as the file `fault` beside this one says, outside the product: it lies on its
PYTHONPATH.

A process looks when it imports torch ("no-torch"), or when a probe begins:

- flip: one bit of one product is wrong.
- hang: products never end.
- no-torch: there is no torch, as in a wrong image.
"""

import sys
import time
from pathlib import Path
from typing import Any

_WRONG_PRODUCT = 9
_FOR_EVER_SECONDS = 3600


def fault() -> str:
    """What is wrong now; "" for nothing."""
    try:
        return Path(__file__).with_name("fault").read_text().strip()
    except FileNotFoundError:
        return ""


def wrap() -> None:
    """Before the probes are bound: put those that look first in their places."""
    from muster.node.checker.probes import bits, compute, device_probes

    sums, products, count = bits.bits, compute.gemm, device_probes.count_devices

    def counting(worker: Any) -> Any:
        worker.order.pop("expected", None)  # the GPUs of test nodes are numbers
        return count(worker)

    def flipping(worker: Any) -> Any:
        if fault() == "flip":
            torch, product, turns = worker.torch, worker.torch.mm, iter(range(1, sys.maxsize))

            def mm(*arguments: Any, **options: Any) -> Any:
                result = product(*arguments, **options)
                if next(turns) == _WRONG_PRODUCT:
                    result.view(torch.int16 if result.element_size() == 2 else torch.int32)[0, 0] ^= 1
                return result

            torch.mm = mm
        return sums(worker)

    def hanging(worker: Any) -> Any:
        if fault() == "hang":
            worker.phase("gemm")
            time.sleep(_FOR_EVER_SECONDS)
        return products(worker)

    bits.bits, compute.gemm, device_probes.count_devices = flipping, hanging, counting


if "muster.node.checker.probes.zygote" in sys.orig_argv:
    wrap()
    if fault() == "no-torch":
        sys.modules["torch"] = None  # type: ignore[assignment]
