"""The API server's part of a watch: a list, and events that the test puts in."""

import json
import queue
from collections.abc import Iterator, Mapping
from typing import Any

from localcluster.patience import PATIENCE_SECONDS


class Server:
    """Answers a list with these items, and a watch with what the test says.

    Attributes:
        items: of the list.
        lines: of the watch; None ends it.
        versions: from which watches were begun.
    """

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items = list(items)
        self.lines: queue.Queue[bytes | None] = queue.Queue()
        self.versions: list[str] = []

    def get(self, _path: str) -> Any:
        return {"metadata": {"resourceVersion": "7"}, "items": self.items}

    def watch(self, _path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        self.versions.append(query["resourceVersion"])
        while (line := self.lines.get(timeout=PATIENCE_SECONDS)) is not None:
            yield line

    def say(self, kind: str, value: dict[str, Any]) -> None:
        self.lines.put(json.dumps({"type": kind, "object": value}).encode())
