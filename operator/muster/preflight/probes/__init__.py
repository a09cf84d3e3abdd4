"""The probes of the burn-in: they run on the node, on its GPUs with CUDA and NCCL, else on its CPU with gloo.

Standard library and torch only, Python >= 3.8, because they run on the Python beside which torch is installed. Only the
zygote imports torch; every probe is handed it, so that its logic can be tried with a plain double.
"""

from __future__ import annotations

import hashlib
import os

_DIGEST_CHARACTERS = 12


def version() -> str:
    """Digest of the probes' source: figures of two versions are not compared."""
    folder = os.path.dirname(os.path.abspath(__file__))
    whole = hashlib.sha256()
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".py")):
        with open(os.path.join(folder, name), "rb") as file:
            data = file.read()
        whole.update(b"%s %d\n" % (name.encode(), len(data)))
        whole.update(data)
    return whole.hexdigest()[:_DIGEST_CHARACTERS]
