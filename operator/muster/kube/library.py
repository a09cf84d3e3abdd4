"""Imports the two used parts of the Kubernetes library, without the rest of it.

An import of a part of a package runs the package's `__init__`. Those of `kubernetes` and `kubernetes.aio` import
everything, a second HTTP client included: a fifth of the time in which `kubectl muster` starts, and 9 MB in each of
Muster's processes. The packages are registered here without running their `__init__`; their parts are imported as
usual.
"""

import importlib
import importlib.util
import sys
from typing import Any


def part(name: str) -> Any:
    """Return a module of `kubernetes.aio`, by its name there. It has no types."""
    for package in ("kubernetes", "kubernetes.aio"):
        if package not in sys.modules:
            spec = importlib.util.find_spec(package)
            assert spec is not None, f"{package} is not installed"
            sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"kubernetes.aio.{name}")
