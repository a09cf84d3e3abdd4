"""What a reader needs to compare the figures with others: machine, versions, client limits."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from bench.bed import ROOT
from localcluster.build import JOBSET, KUBERNETES_VERSION, KUEUE, KWOK, extra_version
from localcluster.kwok import CLIENT_LIMITS

# What decides Muster's figures: rows from different states of these are not merged.
_DECIDING = ("operator", "crds", "bench")


def facts() -> dict[str, Any]:
    """Everything beside the rows."""
    return {
        "machine": _machine(),
        "versions": {
            "kubernetes": KUBERNETES_VERSION,
            "kwok": extra_version(KWOK),
            "jobset": extra_version(JOBSET),
            "kueue": extra_version(KUEUE),
            "python": platform.python_version(),
            "muster": _commit(),
        },
        "client_limits": {
            **CLIENT_LIMITS,
            "jobset_queries_per_second": 500,
            "jobset_burst": 500,
            "kueue_queries_per_second": 300,
            "kueue_burst": 500,
            "kwok": "none",
            "muster": "none",
        },
    }


def _machine() -> dict[str, Any]:
    processor = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {
        "processor": processor[1] if processor else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory[1]) / (1 << 20), 1) if memory else 0,
        "kernel": platform.release(),
    }


def _commit() -> str:
    """The commit, and a digest of what was changed since where it matters."""
    commit = _git("rev-parse", "--short=12", "HEAD").strip()
    changed = _git("diff", "HEAD", "--", *_DECIDING)
    new = _git("ls-files", "--others", "--exclude-standard", "--", *_DECIDING)
    if not changed and not new:
        return commit
    return f"{commit}+{hashlib.sha256((changed + new).encode()).hexdigest()[:8]}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
