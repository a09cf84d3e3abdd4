"""What stands before the lines of a rank, and what libraries log beside them: the same for launcher and operator.

Sources: torch/distributed/__init__.py (the prefix of exceptions), torch/distributed/elastic/multiprocessing/
tail_log.py (torchrun's, with `--tee`), c10/util/Logging.cpp, multiprocessing/resource_tracker.py.

Tests: tests/unit/launcher/test_first_failure.py, tests/unit/recovery/test_ended_well.py,
tests/unit/reports/test_last_lines.py.
"""

import re

TRACEBACK = "Traceback (most recent call last)"
# Of one process, with its numbers: torchrun's with the local rank, PyTorch's with the rank.
PREFIX = re.compile(r"(?:\[default(\d{1,6})\]:)?(?:\[rank(\d{1,6})\]:)?")
# The same in any order.
PREFIXES = re.compile(r"(?:\[(?:rank|default)\d{1,6}\]:)*")
# Any that a launcher of processes may put there.
ANY_PREFIXES = re.compile(
    r"^(?:\[?(?:rank|default|worker)?\d+\]?: ?|\([A-Za-z]\w*(?: [\w=]{1,32}){0,2} pid=\d{1,10}(?:[^\d)][^)]*)?\) "
    r"|ERROR \d\d-\d\d [\d:]{8} (?:\[[^\]]*|\w{1,64}\.py:\d+)\] ?"
    r"|(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?\[\d+,\d+\]<std\w{3,4}>: ?)+"  # of Open MPI
)
# Parts of patterns, at the beginning of a line: a line in the log of PyTorch's C++, one that warns, and what Python
# warns of at the end of a process.
LOGGED, LOGGED_WARNING = r"\[[WI]\d{3,4} ", r"\[W\d{3,4} "
PYTHON_WARNING = r".{0,256}\bresource_tracker: |\s+warnings\.warn\("
# What tells a terminal to show colours or to move: loggers and progress bars print it into logs, too.
TERMINAL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
NCCL_INFO = r"\bNCCL INFO "  # in any line of its log
