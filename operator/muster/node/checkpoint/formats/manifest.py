"""`muster-checkpoint.json`: what a trainer of any framework can rename into a checkpoint last.

Tests: tests/unit/checkpoint/test_find.py.
"""

from __future__ import annotations

from typing import Optional

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import Format, Words
from muster.node.checkpoint.manifest import MANIFEST_NAME, Manifest, ManifestError, parse_manifest


def _manifest(candidate: Candidate, name: str) -> Manifest:
    try:
        return parse_manifest(candidate.document(name))
    except ValueError as error:
        raise ManifestError("%s: %s" % (name, error)) from error


def _step(candidate: Candidate) -> Optional[int]:
    return candidate.remembered(MANIFEST_NAME, _manifest).step


def _problem(candidate: Candidate) -> str:
    for path, size_bytes in candidate.remembered(MANIFEST_NAME, _manifest).sizes.items():
        file = candidate.files.get(path)
        if file is None:
            return "%s names %s, which does not exist" % (MANIFEST_NAME, path)
        if file.size_bytes != size_bytes:
            return "%s has %d bytes, not %d" % (path, file.size_bytes, size_bytes)
    return ""


MANIFEST = Format(
    "Manifest",
    Words(
        written_by="any trainer",
        place="any directory with `muster-checkpoint.json`",
        step="`step` in it",
        complete="every file that it names has exactly the size that it says",
    ),
    (MANIFEST_NAME,),
    _problem,
    _step,
)
