"""Where results are kept: by commit, in the user's cache folder, so that anybody can see what a commit has passed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from gate.stage import ROOT
from localcluster.cache import cache_root


def clean_commit() -> str | None:
    """The commit that is checked out; None where the tree differs from it, or where git cannot say."""
    commit = _git("rev-parse", "HEAD")
    return commit if commit and _git("status", "--porcelain", "--untracked-files=normal") == "" else None


def _git(*arguments: str) -> str | None:
    try:
        answer = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # no git on this machine
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def gate_file(commit: str) -> Path:
    return cache_root() / "gate" / f"{commit}.json"


def parts_folder() -> Path:
    """Results of `make test-all`: a folder for each commit, in it a file for each part."""
    return cache_root() / "test-all"


def write(path: Path, content: Any) -> None:
    """Replace the file in one step: a reader sees the old content or the new. A failure is printed and fails no
    stage."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
        temporary.replace(path)
    except OSError as error:
        print(f"The result could not be kept: {error}. Set MUSTER_CACHE to a folder that can be written.")
