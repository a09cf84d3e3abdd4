"""The other end of `patterns.py`: compiles step patterns, each within a limit of processor time and memory.

In: a pattern as JSON on each line. Out: on each line, as JSON, why it is no step pattern; "" = it is one. While a
pattern is compiled no other code of the process runs, but the kernel's timer ends it (SIGPROF).

Tests: tests/unit/controller/test_patterns.py.
"""

import json
import re
import resource
import signal
import sys

CPU_SECONDS = 0.5
_MEMORY_BYTES = 256 * 1024 * 1024
_MAX_CHARS = 200


def problem_of(pattern: str) -> str:
    """Why a text is no step pattern; "" = it is one."""
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:  # as it happens to be for counts, and for depth
        return f"not a regular expression that Python understands: {str(error)[:_MAX_CHARS]}"
    except MemoryError:
        return "it takes too much memory to compile"
    finally:
        re.purge()
    return "" if groups == 1 else f"needs exactly one group that holds the step number, it has {groups}"


def main() -> None:
    """Answer requests on standard input until it is closed."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        answer = problem_of(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
