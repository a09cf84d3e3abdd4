"""The two parts of the Kubernetes library that are used here, without the rest of it.

Whoever imports a part of a package runs the package's own first lines, and those of `kubernetes` and `kubernetes.aio`
import everything that there is, a second HTTP client among it: a fifth of the time in which `kubectl muster` starts,
and 9 MB in each of Muster's processes. The packages are put in their places without these lines; their parts are found
as ever.
"""

import importlib
import importlib.util
import sys
from typing import Any


def part(name: str) -> Any:
    """A module of `kubernetes.aio`, by its name there. It has no types."""
    for package in ("kubernetes", "kubernetes.aio"):
        if package not in sys.modules:
            spec = importlib.util.find_spec(package)
            assert spec is not None, f"{package} is not installed"
            sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"kubernetes.aio.{name}")
