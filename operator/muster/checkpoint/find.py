"""Looks into a checkpoint directory: reads as little as possible, and remembers what it parsed.

The metadata of a large model has tens of megabytes. A Finder lives as long as the process that scans, so that each
metadata file is parsed once; a scan then costs one listing per candidate.
"""

from __future__ import annotations

import os
from typing import Dict, List, Mapping, Optional, Tuple, Union

from muster.checkpoint.dcp import METADATA_NAME, MetadataError, shard_sizes
from muster.checkpoint.listing import Listing, child_directories, read_content, read_listing
from muster.checkpoint.manifest import MANIFEST_NAME, Manifest, ManifestError, parse_manifest
from muster.checkpoint.scan import (
    Checkpoint,
    dcp_problem,
    manifest_problem,
    newest_first,
    order_candidates,
    step_in_name,
)

LIMIT = 8
MAX_EXAMINED = 64
MAX_WITHOUT_STEP = 16

_Parsed = Union[Manifest, Mapping[str, int], str]  # str: why it cannot be parsed


class Finder:
    """Finds the newest complete checkpoints in one directory, again and again."""

    def __init__(self, directory: str) -> None:
        self._directory = os.path.abspath(directory)
        self._parsed: Dict[str, Tuple[Tuple[int, int], _Parsed]] = {}

    def find(self, limit: int = LIMIT) -> List[Checkpoint]:
        """The newest complete checkpoints among the directory itself and its children, newest step first.

        Raises:
            OSError: the directory cannot be read; a missing one holds nothing.
        """
        found: List[Checkpoint] = []
        names = order_candidates(child_directories(self._directory))
        nameless = [name for name in names if step_in_name(name) is None][:MAX_WITHOUT_STEP]
        stepped = [name for name in names if step_in_name(name) is not None][:MAX_EXAMINED]
        with_step = 0
        for path in self._itself() + [os.path.join(self._directory, name) for name in nameless + stepped]:
            if with_step >= limit:
                break
            checkpoint = self._examine(path)
            if checkpoint is not None:
                found.append(checkpoint)
                with_step += os.path.basename(path) in stepped
        return newest_first(found, limit)

    def _itself(self) -> List[str]:
        markers = (MANIFEST_NAME, METADATA_NAME)
        whole = any(os.path.isfile(os.path.join(self._directory, marker)) for marker in markers)
        return [self._directory] if whole else []

    def _examine(self, path: str) -> Optional[Checkpoint]:
        try:
            listing = read_listing(path)
        except PermissionError:  # lost+found and the like
            return None
        if listing.truncated:
            return None
        if MANIFEST_NAME in listing.files:
            manifest = self._parse(listing, MANIFEST_NAME)
            if isinstance(manifest, Manifest) and not manifest_problem(listing, manifest):
                return Checkpoint(manifest.step, path)
        elif METADATA_NAME in listing.files:
            sizes = self._parse(listing, METADATA_NAME)
            step = step_in_name(os.path.basename(path))
            if isinstance(sizes, dict) and step is not None and not dcp_problem(listing, sizes):
                return Checkpoint(step, path)
        return None

    def _parse(self, listing: Listing, name: str) -> _Parsed:
        path = os.path.join(listing.path, name)
        file = listing.files[name]
        version = (file.size_bytes, file.modified_ns)
        known = self._parsed.get(path)
        if known is not None and known[0] == version:
            return known[1]
        try:
            data = read_content(path)
            parsed: _Parsed = parse_manifest(data) if name == MANIFEST_NAME else shard_sizes(data)
        except (ManifestError, MetadataError) as error:
            parsed = str(error)
        except FileNotFoundError:
            return "it vanished"
        if len(self._parsed) > 4 * MAX_EXAMINED:
            self._parsed.clear()
        self._parsed[path] = (version, parsed)
        return parsed
