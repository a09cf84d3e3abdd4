"""Reads from the last lines of a rank why it ended: by itself, since it lost its peers, or because it was killed. Pure.

A lost peer takes all others along within moments, and each prints what its library says of that. Such an exit is never the
cause while there is another one. The tables are what libraries and launchers print, as tests/data/reports/last_lines has it with
its sources. A connection to a service (a hub, an object store, a tracker) is none to a peer.
"""

import re
import signal
from enum import Enum, auto
from functools import lru_cache

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that a process does not send itself."""
# Signals of a fault of its own, whatever it has printed before.
_OF_ITS_OWN = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
_KEPT = 4096  # answers: the ranks that failed are looked at in each decision
_BY_SIGNAL = 128  # a shell ends with so much more when what it ran was ended by a signal


class Cause(Enum):
    """Why a rank ended, as far as it says so itself."""

    OWN = auto()
    LOST_PEER = auto()
    KILLED = auto()


# What a launcher, a shell or a parent says of a child that was killed.
_KILLED = re.compile(
    r"Signal (?:9|15) \(SIG(?:KILL|TERM)\) received by PID"  # torchrun, its root cause
    r"|exitcode\s*: -(?:9|15)\b"
    r"|\bgot signal: (?:9|15)\b"  # torchrun itself
    r"|died with <Signals\.SIG(?:KILL|TERM): "  # Python's subprocess
    r"|terminated with signal SIG(?:KILL|TERM)\b"  # torch.multiprocessing
    r"|is killed by signal: (?:Killed|Terminated)\b"  # torch's DataLoader
    r"|^(?:.*: line \d+: +)?(?:\d+ +)?(?:Killed|Terminated)\b(?: {2,}|$)"  # bash
    r"|exited on signal (?:9|15) \("  # Open MPI
    r"|exits with return code = -(?:9|15)\b"  # DeepSpeed
    r"|EXIT STRING: (?:Killed|Terminated) \(signal|KILLED BY SIGNAL: (?:9|15)\b"  # Hydra
)
_LOST_PEER = re.compile(
    # gloo
    r"gloo/\S+:\d+\] .*(?:closed by peer|reset by peer|Broken pipe|Connection refused|Socket closed|[Tt]imed? ?out)"
    r"|Gloo connectFullMesh failed"
    # NCCL
    r"|ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer"
    r"|Got completion from peer .*(?:status|error)[= ]\(?(?:5|12)\b"  # flushed, or retries exceeded
    r"|Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out"
    r"|NCCL communicator was aborted|dump signal due to a collective timeout"
    r"|ProcessGroupNCCL::(?:WorkNCCL::checkTimeout|checkForNCCLErrors)"  # frames, where they fill the last lines
    # PyTorch: the store, barriers, the rendezvous of torchrun
    r"|(?:recvValue|sendBytes|recvBytes|recvVector) failed on SocketImpl|[Ff]ailed to recv, got 0 bytes"
    r"|Connection was likely closed|client socket has (?:failed to connect|timed out)|\bSocket Timeout\b"
    r"|DistStoreError: (?:Timed out|wait timeout) after|failed to pass monitoredBarrier|timed out in monitoredBarrier"
    r"|RendezvousConnectionError|failed to send a keep-alive heartbeat to the rendezvous"
    # JAX
    r"|JAX distributed service detected fatal errors|indicates that (?:another|the remote) task (?:died|has failed)"
    r"|The tasks have crashed|Barrier (?:timed out|failed)|heartbeat timeout"
    r"|\b(?:UNAVAILABLE|DEADLINE_EXCEEDED): "
    # UCX, Open MPI
    r"|UCX +ERROR .*(?:reset by remote peer|retry count exceeded|[Ee]ndpoint timeout|timed out)|MPI_ERR_PROC_FAILED"
    r"|has lost communication with a remote daemon"
    # sockets
    r"|\bConnection(?:Reset|Refused|Aborted)Error\b|\bBrokenPipeError\b|\b[Bb]roken pipe\b|\bpeer closed(?: the connection)?\W*$"
    r"|[Cc]onnection (?:was )?(?:closed|reset|refused|abort(?:ed)?|timed out)\b|closed by remote host"
    r"|No route to host|Transport endpoint is not connected(?!: ['\"])|^EOFError$"
)
# Of such a line: whom it was connected to is no peer.
_SERVICE = re.compile(
    r"https?://|HTTPS?Connection|\b(?:requests|urllib3|urllib|httpx|httpcore|aiohttp|botocore|google\.api_core|azure)\."
    r"|huggingface|wandb|mlflow|libcurl|\bredis\b|EndpointConnectionError"
    r"|\b(?:psycopg2?|sqlalchemy|pymongo|pymysql|kafka|asyncpg|paramiko|tritonclient)\.|\b(?:gs|s3)://|CURL error|^details = \"|Unable to initialize backend"
)
_WARNS = re.compile(r"\[W\d{3,4} ")
_SOCKET = re.compile(r"(?:Connection\w+|BrokenPipe)Error\b|EOFError$")
# A service's client, or a process of this rank's own (a data loader's).
_FRAME = re.compile(
    r"/(?:_utils/worker|multiprocessing|wandb|urllib3|requests|http|ssl|pymongo|redis|psycopg2?|boto\w*|aiohttp)[/.]"
)
_RANK = re.compile(r"^(?:\[?(?:rank|default|worker)?\d+\]?: ?)+")
_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::|$)|.*\bCUDA (?:error|out of memory)\b"
)
# They say that something has failed, and what it was stands before or behind them.
_AROUND = re.compile(r"(?:\S+\.)?(?:ChildFailedError|DistBackendError|CalledProcessError|ProcessRaisedException)\b")
_AND_THEN = re.compile(
    r"^.*(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):.*$",
    re.MULTILINE,
)
_AT_EXIT = re.compile(r"^.*Exception ignored in", re.MULTILINE)


def is_killed(exit_code: int | None, by_signal: int | None) -> bool:
    """Whether a signal from outside ended a process, or what a shell ran for it."""
    return (by_signal if by_signal is not None else (exit_code or 0) - _BY_SIGNAL) in OUTSIDE


@lru_cache(maxsize=_KEPT)
def cause_of(tail: str, exit_code: int | None, by_signal: int | None) -> Cause:
    """Why a rank ended.

    Of exceptions that follow one another the first one counts: what is met while it is handled follows from it. Of a
    traceback its last line does.

    Args:
        tail: what it printed last.
    """
    if is_killed(exit_code, by_signal):
        return Cause.KILLED
    if by_signal in _OF_ITS_OWN:
        return Cause.OWN
    if by_signal == signal.SIGPIPE:
        return Cause.LOST_PEER
    whole = _AT_EXIT.split(tail, maxsplit=1)[0]
    said = (_said(part) for part in _AND_THEN.split(whole))
    return next((cause for cause in said if cause is not None), Cause.OWN)


def _said(text: str) -> Cause | None:
    """What the last of these lines that says anything says; None where none does."""
    lines = [_RANK.sub("", line.strip()) for line in text.splitlines()]
    # Threads warn of a store that is gone while a rank ends, whatever it ends of.
    told = [line for line in lines if not _WARNS.match(line)]
    found = _told(told)
    return found if found is not None or len(told) == len(lines) else _told(lines)


def _told(lines: list[str]) -> Cause | None:
    for at in range(len(lines) - 1, -1, -1):
        bare = lines[at]
        if _KILLED.search(bare):
            return Cause.KILLED
        if _LOST_PEER.search(bare):
            frame = next((each for each in reversed(lines[:at]) if each.startswith('File "')), "")
            if not _SERVICE.search(bare) and not (_SOCKET.match(bare) and _FRAME.search(frame)):
                return Cause.LOST_PEER
            if _ERROR.match(bare):
                return Cause.OWN
            continue
        if _ERROR.match(bare) and not _AROUND.match(bare):
            return Cause.OWN
    return None
