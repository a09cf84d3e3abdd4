"""Runs the process that calls NVML: a call may hang for ever, and only a process can be killed.

`python -m muster.node.agent.nvml_child` reads names of batches from stdin, a line each, and writes one line of JSON per
batch to stdout. One thread waits for events and writes them as they come; another reports at which GPU a batch is
delayed. It ends with its parent.

Tests: tests/unit/agent/test_faults.py.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time

_WAIT_MILLISECONDS = 5000
_PAUSE_AFTER_ERROR_SECONDS = 10.0
_HELD_SECONDS = 0.5
_PR_SET_PDEATHSIG = 1
_write_lock = threading.Lock()


def main() -> None:
    """Serve the parent process until it ends."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # The output of a library must not get between the answers.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    import pynvml  # type: ignore[import-untyped]

    from muster.node.agent.nvml_batches import Answer, Batches

    def write(answer: Answer) -> None:
        with _write_lock:
            os.write(answer_fd, (json.dumps(answer, separators=(",", ":")) + "\n").encode())

    batches = Batches(pynvml)

    def listen() -> None:
        events = batches.listen()
        while events is not None:
            try:
                event = batches.event(events, _WAIT_MILLISECONDS)
            except pynvml.NVMLError:
                time.sleep(_PAUSE_AFTER_ERROR_SECONDS)
                continue
            if event is not None:
                write({"event": event})

    under_way = threading.Event()

    def watch() -> None:
        """Wait for events; the calls let other threads run while they wait."""
        previously_held: int | None = None
        while under_way.wait():
            time.sleep(_HELD_SECONDS / 2)
            gpu, since = batches.at
            held_gpu = gpu if under_way.is_set() and time.monotonic() - since > _HELD_SECONDS else None
            if held_gpu != previously_held and under_way.is_set():
                write({"held_by": held_gpu})
            previously_held = held_gpu

    threading.Thread(target=watch, name="watch", daemon=True).start()

    def start() -> Answer:
        answer = batches.start()
        if "init_error" not in answer:
            threading.Thread(target=listen, name="events", daemon=True).start()
        return answer

    functions = {"start": start, "fast": batches.fast, "normal": batches.normal, "slow": batches.slow}
    functions["reach"] = batches.reach
    for line in sys.stdin:
        name, *left_out = line.split()
        if name == "start":
            batches.left_out = frozenset(map(int, left_out))
        under_way.set()
        answer = functions[name]()
        under_way.clear()
        write({"batch": name, "answer": answer})
    # Threads may hang in the driver; there is nothing to clean up.
    os._exit(0)


if __name__ == "__main__":
    main()
