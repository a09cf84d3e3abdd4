"""The probes of the burn-in: they run on the node, on its GPUs with CUDA and NCCL, else on its CPU with gloo.

Standard library and torch only, Python >= 3.8, because they run on the Python beside which torch is installed. Only the
zygote imports torch; every probe gets it as an argument, so that its logic can be tested with a plain double.

Tests: tests/unit/preflight_probes/test_zygote.py.
"""

from __future__ import annotations

import hashlib
import os

from muster.protocol import profiles

_DIGEST_CHARACTERS = 12


def version() -> str:
    """Return a digest of the source of probes and profiles: figures of two versions are not compared."""
    folder = os.path.dirname(os.path.abspath(__file__))
    paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".py")]
    whole = hashlib.sha256()
    for path in [*paths, os.path.abspath(profiles.__file__)]:
        with open(path, "rb") as file:
            data = file.read()
        whole.update(b"%s %d\n" % (os.path.basename(path).encode(), len(data)))
        whole.update(data)
    return whole.hexdigest()[:_DIGEST_CHARACTERS]
