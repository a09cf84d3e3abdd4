"""The floor of the quiet fleet: `watcher SERVER CA PATH...` decodes each line of these watches and does nothing with
it.

A line of input is answered by the number of events so far.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from pathlib import Path

from bench.api import Connection


def main(server: str, ca: str, *paths: str) -> None:
    """Count until the input ends."""
    counts = dict.fromkeys(paths, 0)

    def watch(path: str) -> None:
        connection = Connection(server, os.environ["BENCH_TOKEN"], Path(ca))
        version = connection.get(path, {"limit": 1})["metadata"]["resourceVersion"]
        for number, line in enumerate(connection.watch(path, {"resourceVersion": version}), 1):
            json.loads(line)
            counts[path] = number

    for path in paths:
        threading.Thread(target=watch, args=(path,), daemon=True).start()
    for _ in itertools.takewhile(bool, iter(sys.stdin.readline, None)):
        print(json.dumps(sum(counts.values())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
