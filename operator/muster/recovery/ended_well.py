"""Read from the last lines of a rank that ended with code 0 whether it looks as if it had failed. Pure.

Where a shell hides the exit code (`python3 train.py | tee log`), a program that raised an exception ends with code 0.
Its last lines are the traceback then. Only what stands at the very end counts: programs print exceptions that they
have handled, and go on.
"""

import re

from muster.protocol.rank_lines import LOGGED_WARNING, PREFIXES, PYTHON_WARNING, TRACEBACK

_MOST_CHARS = 300
_FRAME = re.compile(r'\s+File ".{1,1024}", line \d+')
_RAISED = re.compile(r"[A-Za-z_][\w.]{0,255}(?::\s.*)?\Z")
_BORDER = re.compile(r"={20,}\Z")
_BLOCK = "ChildFailedError:"
# What a library prints of an exception that ended nothing, while the interpreter ends.
_IGNORED = re.compile(r"Exception ignored (?:in|while)\b|Error in atexit\._run_exitfuncs")
# What stands behind the line of an exception: the rest of CUDA's text, warnings at the end of a process.
_BEHIND = re.compile(
    r"(?:CUDA kernel errors might be|For debugging consider passing|Compile with `TORCH_USE_CUDA_DSA`"
    rf"|Device-side assert|{LOGGED_WARNING}|{PYTHON_WARNING})"
)
_FRAME_LINES = 8  # above the exception, among which a frame has to be


def raised_at_the_end(tail: str) -> str:
    """Return the line of the exception whose traceback ends the last lines of a rank; "": they do not end so.

    Of torchrun's list of processes that failed it is the name of that exception.
    """
    lines = [(match.group(), line[match.end() :]) for line in tail.splitlines() if (match := PREFIXES.match(line))]
    while lines and (not lines[-1][1].strip() or _BEHIND.match(lines[-1][1].removeprefix(" "))):
        lines.pop()
    if not lines:
        return ""
    prefix = lines[-1][0]
    own = [text.removeprefix(" ") if prefix else text for line_prefix, text in lines if line_prefix == prefix]
    if _BORDER.match(own[-1].strip()):
        blocks = [line.strip() for line in own if line.strip().endswith(_BLOCK)]
        return blocks[-1].rstrip(":")[:_MOST_CHARS] if blocks else ""
    last = own[-_FRAME_LINES:]
    frames = [at for at, line in enumerate(last[:-1]) if _FRAME.match(line)]
    if not _RAISED.match(own[-1]) or not frames:
        return ""
    if not all(line[:1].isspace() for line in last[frames[-1] : -1]):
        return ""  # something else was printed behind the traceback
    heads = [at for at, line in enumerate(own) if TRACEBACK in line]
    searched = own[heads[-1] - 1 : heads[-1]] if heads else own
    return "" if any(map(_IGNORED.search, searched)) else own[-1].strip()[:_MOST_CHARS]
