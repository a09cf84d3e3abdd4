"""Reads from the last lines of a rank why it ended: by its own fault, a lost peer, or a signal from outside. Pure.

A lost peer takes all other ranks along within moments, and each prints what its library says about that. Such an exit
is never the cause while there is another one. The tables are what libraries and launchers print, as
tests/data/reports/last_lines has it with its sources. A connection to a service (a hub, an object store, a tracker) is
no connection to a peer.

Tests: tests/unit/reports/test_last_lines.py.
"""

import re
import signal
from enum import StrEnum

from muster.protocol.rank_lines import ANY_PREFIXES, LOGGED_WARNING, NCCL_INFO
from muster.recovery.ended_well import raised_at_the_end

OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
"""Signals that a process does not send itself."""
# Signals of a fault of its own, whatever it has printed before.
_OF_ITS_OWN = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})
_LEAST_CHARS = 5  # of a line that tells anything
_BY_SIGNAL = 128  # a shell ends with so much more when what it ran was ended by a signal


class Cause(StrEnum):
    """Why a rank ended, as far as its own output tells: its own fault, a lost peer, or a signal from outside.

    An exception of the program is a fault of its own that says nothing of its node.
    """

    OWN = "Own"
    EXCEPTION = "Exception"
    LOST_PEER = "LostPeer"
    KILLED = "Killed"


def _in_order(*ways: tuple[str, ...]) -> tuple[tuple[re.Pattern[str], ...], ...]:
    """Return patterns of texts that stand in a line one behind the other, with anything between them; one way is
    enough."""
    return tuple(tuple(map(re.compile, way)) for way in ways)


_NUMBER, _NAME = r"(?:1|2|9|15)\b", r"SIG(?:HUP|INT|KILL|TERM)\b"
# What a launcher, a shell, a batch system or a parent says of a process that was killed.
_KILLED = re.compile(
    rf"Signal {_NUMBER} \({_NAME}\) received by PID"  # torchrun, its root cause
    rf"|exitcode\s*: -{_NUMBER}"
    rf"|\bgot signal: {_NUMBER}|\bReceived (?:{_NUMBER}|Signals\.{_NAME}) death signal"  # torchrun itself
    rf"|died with <Signals\.{_NAME}"  # Python's subprocess
    rf"|terminated with signal {_NAME}"  # torch.multiprocessing
    r"|is killed by signal: (?:Hangup|Interrupt|Killed|Terminated)\b"  # torch's DataLoader
    r"|^(?:.*: line \d+: +)?(?:\d+ +)?(?:Killed|Terminated)\b(?: {2,}|$)"  # bash
    rf"|exited on signal {_NUMBER} \("  # Open MPI
    rf"|exits with return code = -{_NUMBER}"  # DeepSpeed
    rf"|EXIT STRING: (?:Killed|Terminated) \(signal|KILLED BY SIGNAL: {_NUMBER}"  # Hydra
    rf"|\*\*\* {_NAME} \(@0x[0-9a-f]+\) received by PID \d+"  # glog, as Paddle has it
    r"|\bSIGTERMException\b"  # Lightning
)
# A kernel of DeepEP that has waited for another rank in vain.
_KERNEL_WAITED = (
    r"DeepEP (?:[\w()-]{1,16} ){0,8}timeout(?:, | \((?:RDMA|NVL) | check failed: | for (?:dispatch|combine|barrier)\b)"
)
# NCCL on InfiniBand; newer versions put the status's name before its number, old ones name no peer.
_COMPLETION, _STATUS = r"Got completion (?:from peer|with) ", r"(?:status|error)[= ](?:IBV_WC_\w{1,32})?\(?"
# What a library says only of a peer. Where a text is its own word, no \b stands before it: each line would take longer.
_LOST_PEER = re.compile(
    # gloo
    r"Gloo connectFullMesh failed|Application timeout caused pair closure"
    # NCCL
    r"|ncclRemoteError|remote process exited or there was a network error|Connection closed by remote peer"
    r"|Watchdog caught collective operation timeout|Some NCCL operations have failed or timed out"
    r"|NCCL communicator was aborted|dump signal due to a collective timeout"
    r"|ProcessGroupNCCL::(?:WorkNCCL::checkTimeout|checkForNCCLErrors)"  # frames, where they fill the last lines
    # The same library on AWS Neuron
    r"|\bCCOM WARN Timeout waiting for (?:incoming connection|RX|TX)\b"
    # DeepEP; Mooncake has its kernels, too
    rf"|DeepEP error: (?:\w+ ){{0,2}}timeout\b|Dispatch CPU wait exception \(|{_KERNEL_WAITED}"
    r"|Mooncake elastic barrier timeout, "
    # The verbs library, for completions with status 12 and 13: the other end does not answer
    r"|(?:transport|RNR) retry counter exceeded\b"
    # NIXL
    r"|NIXL_ERR_REMOTE_DISCONNECT\b|remote agent '[^']{1,128}' was disconnected after "
    r"|Handshake from peer '[^']{1,128}' not received after "
    # Mooncake
    r"|Worker: (?:Timed out waiting for RDMA ready ACK|Cannot make connection for endpoint: )|P2P (?:(?:send|ack) "
    r"transfer failed/timeout, peer=|wait-for-(?:credit|ack) timeout, peer=|(?:SendOp to|RecvOp from) peer \d)"
    # NVSHMEM
    r"|received timeout signal from GPU thread\(s\) in nvshmem_(?:wait|barrier)"
    # oneCCL
    r"|KVS get error: timeout limit|read: can not process all data, size "
    # PyTorch: the store, barriers, the rendezvous of torchrun
    r"|(?:recvValue|sendBytes|recvBytes|recvVector) failed on SocketImpl|[Ff]ailed to recv, got 0 bytes"
    r"|Connection was likely closed|client socket has (?:failed to connect|timed out)|\bSocket Timeout\b|store->get\("
    r"|DistStoreError: (?:Timed out|wait timeout) after|failed to pass monitoredBarrier|timed out in monitoredBarrier"
    r"|reached monitoredBarrier, but received errors|RPC ran for more than set timeout"
    r"|in store based barrier on rank|Rendezvous(?:Closed|Connection|GracefulExit|Timeout)Error"
    r"|failed to send a keep-alive heartbeat to the rendezvous|ValueError: host not found: "
    r"|(?<!no address found \(this error )(?<!context not viable \(this error )originated at tensorpipe/"
    r"|may indicate a possible application crash on rank \d"
    # JAX, XLA, TensorFlow
    r"|JAX distributed service detected fatal errors|indicates that (?:another|the remote) task (?:died|has failed)"
    r"|The tasks have crashed|Barrier (?:timed out|failed)|heartbeat timeout|connect with a different incarnation"
    r"|\b(?:UNAVAILABLE|DEADLINE_EXCEEDED): |\b(?:RPC failed with status = \"|StartAbort |Aborting Ring\w{1,16} with )"
    r"(?:Unavailable|Deadline Exceeded): |errors_impl\.UnavailableError: (?:Collective ops is aborted by: )?(?:failed "
    r"to connect|Socket closed|OS Error|Endpoint read failed|Connection reset)"
    r"|threads to join the rendezvous, but not all|Failed to connect to client mesh master: "
    # libtpu, between slices
    r"|Megascale hang detected: |Megascale detects a hang that is likely caused by (?:bad TPU |a networking issue)"
    r"|(?:Barrier|Topology)Coordinator: Unable to wait for all slices to connect"
    # UCX, MPI, Horovod
    r"|Failed to resolve UCX endpoint"
    # The same where UCX ends the process for it: it names the file without a level.
    r"|^\[[\w.-]{1,253}:\d+ *(?::[^\]:]{1,32}){1,2}\] +\w+\.c:\d+ +(?:(?:UCX )?(?:Fatal|FATAL): )?"
    r"(?:[Ss]end completion with error: |transport error: |Error on \S{1,64} QP 0x[0-9a-f]+ wqe\[\d+\]: )?"
    r"(?:(?:Transport|Receive-no-ready|transport|RNR) retry count(?:er)? exceeded"
    r"|Remote QP on |[Rr]emote operation error|Remote side aborted|Endpoint timeout"
    r"|UD endpoint 0x[0-9a-f]+ to .{1,120}: unhandled timeout error)"
    r"|MPI_ERR_(?:PROC_FAILED|PROC_ABORTED|REVOKED)|Communication error (?:with rank \d|during connect sequence)"
    r"|Unable to establish connection to (?:process|rank \d)|active connection unexpectedly (?:closed|terminated)"
    r"|Progress TIMEOUT due to MPIR_CVAR_PROGRESS_TIMEOUT|retry count between two MPI processes has been exceeded"
    r"|peer process has unexpectedly disconnected|failed to TCP connect to a peer MPI process"
    r"|has lost communication with a remote daemon|Horovod has been shut down"
    # HCCL, of Ascend's processors, and PyTorch on it
    r"|hccl fftsplus task timeout occurred|ExceptionType:\[Heartbeat Lost Occurred"
    r"|Some HCCL operations have failed or timed out|watchdog detected a dump signal from rank \d"
    r"|SUSPECT REMOTE ERROR\b|reason=\[?suspect remote error"
    # MindSpore, Paddle
    r"|\bTCP (?:send|receive) error\. Details: |The node: \S{1,64} is timed out\. It may exit with exception"
    r"|\bTime out nodes are \[.?[^\]]|the latest update of worker \d{1,6} is \d{1,9} secs ago"
    # LightGBM
    r"|\bSocket (?:recv|send) error, (?:(?:Connection|Broken|No route|Software caused) .{1,60}\(code: \d+\)|code: "
    r"(?:32|10[34]|11[013])\b)"
    # Ray
    r"|ray\.exceptions\.(?:NodeDied|ActorUnavailable|OwnerDied)Error\b|marked dead because the detector has missed "
    r"too many heartbeats|because its node has died"
    r"|The object's owner has exited|All copies of \w{1,128} have been lost due to node failure"
)
# The same where one text has to stand somewhere behind another. As one pattern, `.*` between them takes the square of
# the line's length where the first text is repeated.
_UCX = r"UCX +(?:ERROR|DIAG) "
_LOST_PEER_BEHIND = _in_order(
    (
        r"gloo/\S{1,256}:\d+\] ",
        r"closed by peer|reset by peer|Broken pipe|Connection refused|Socket (?:unexpectedly )?closed|[Tt]imed? ?out",
    ),
    # NCCL: flushed, failed there, or retries exceeded
    (_COMPLETION, rf"{_STATUS}(?:5|11|12|13)\b"),
    (
        r"\b(?:(?:NCCL|CCOM) WARN|socket(?:Poll|Start)Connect)\b",
        r"[Cc]onnection (?:timed out|refused|reset)|No route to host|exceeded (?:timeouts|retries)"
        r"|Could not receive type from localRank",
    ),
    # NCCL and others on EFA: oneCCL, NVSHMEM, Mooncake
    (
        r"NET/OFI|\blibfabric:|fi_cq_readerr: err: |Provider error: |EFA CQ error: ",
        r"\b(?:Unresponsive re(?:mote|ceiver)|Unreachable remote|Bad queue pair \(QP\) number"
        r"|No valid address handle at remote side|Destination resource not ready|Connection was reset by remote peer"
        r"|because the peer closed)",
    ),
    (
        _UCX,
        r"reset by remote peer|retry count(?:er)? exceeded|[Ee]ndpoint timeout|timed out"
        r"|Remote (?:operation error|QP) on |Remote side aborted on |reached maximum number of connection retries"
        r"|connection establishment for socket fd \d+ was unsuccessful",
    ),
    (r"pml_ucx\.c:\d{1,5} {1,3}Error: ucx ", r"reset by remote peer|Endpoint (?:timeout|is not connected)"),
    # NVSHMEM, Mooncake: flushed, or failed there
    (r"ibv_poll_cq failed, ", r"status: (?:5|11|12|13)\b"),
    (r"Worker: Process failed for slice \(", r"\): remote operation error"),
    # MPI
    (
        r"\bOFI poll failed \(",
        r"PTLTE_NOT_FOUND|UNDELIVERABLE|[Cc]onnection (?:reset|refused|timed out)|not connected",
    ),
    (r"\bbtl_tcp_\w{1,64}\.c:", r"reset by peer|timed out|refused"),
    # HCCL
    (
        r"EI00(?:0[26]|13|15)\b",
        r"\b(?:Notify register times out|Getting socket times out|An error CQE occurred during operator execution"
        r"|ranktable information detection failed)",
    ),
    (r"\[RanktableDetect\]", r"topo exchange (?:agent|server) get socket timeout"),
)
# Of its own network card, and so before what it says of a peer.
_OWN_DEVICE = _in_order(
    (
        r"\bNCCL WARN NET/IB",
        r"\basync (?:\w+ )?event\b",
        r": ?(?:port error|local (?:work queue )?catastrophic error|CQ error)",
    ),
    (_UCX, r"\bIB Async event on ", r": (?:port error|local catastrophic error|CQ error)\b"),
)
_NO_TRANSPORT = r"UCX +ERROR +no [\w ]{1,40}transport to "
# What UCX or a program on it concludes, and CUDA of a kernel that has trapped itself, where a line beside it has the
# reason.
_CONCLUDES = (
    (
        _in_order((_UCX, r"\b(?:was not|will not be) handled\b"), (r"Failed to resolve UCX endpoint",)),
        re.compile(rf"\(synd 0x[0-9a-f]|{_NO_TRANSPORT}"),
    ),
    (_in_order((r"unspecified launch failure\b",)), re.compile(_KERNEL_WAITED)),
)
# What every program prints about a connection, to a peer or not.
_WORDS = (
    r"[Cc]onnection (?:was )?(?:closed|reset|refused|abort(?:ed)?|timed out)\b|closed by remote host|\b[Bb]roken pipe\b"
    r"|Software caused connection abort|No route to host|Transport endpoint is not connected(?!: ['\"])"
)
_SOCKET = re.compile(
    rf"{_WORDS}|\bConnection(?:Reset|Refused|Aborted)Error\b|\bBrokenPipeError\b|\bpeer closed(?: the "
    r"connection)?\W*$|^EOFError$"
)
# An exception of a socket, or of PyTorch's first versions, which begins with such words. Where they stand within
# another text, or are said by an exception of another library, they tell of what that text or library is about: a
# shard, a hub, a tracker.
_OF_A_SOCKET = re.compile(
    r"(?:Connection\w*|BrokenPipe|Timeout|EOF|OS|IO|Runtime)Error(?:$|: (?:\[Errno \d+\] |E[A-Z]+: )?"
    rf"(?:{_WORDS}|Connection(?:Reset|Refused|Aborted)Error\b|peer closed|connect\(\) timed out))"
)
# These are about peers wherever the words stand.
_OF_A_LIBRARY = re.compile(
    r"(?:torch|jaxlib|jax|horovod|ray|mpi4py|tensorflow)\.|RuntimeError: .*\b(?:NCCL|c10d|[Gg]loo|MPI)\b"
)
_OF_DATA = re.compile(r"\b(?:bucket|shard|dataset|download|upload|S3|GCS|NFS)(?:s|ed|ing)?\b", re.IGNORECASE)
_RETRIES = re.compile(r"\bretr(?:y|ies|ying)\b", re.IGNORECASE)
# Marks of a connection to a service, which is no peer.
_SERVICE = re.compile(
    r"https?://|HTTPS?Connection|\b(?:requests|urllib3|urllib|httpx|httpcore|aiohttp|botocore|google\.api_core|azure)\."
    r"|huggingface|wandb|mlflow|libcurl|\bredis\b|EndpointConnectionError|\bslurmstepd: "
    r"|\b(?:psycopg2?|sqlalchemy|pymongo|pymysql|kafka|asyncpg|paramiko|tritonclient)\.|\b(?:gs|s3)://|CURL "
    r"error|^details = \"|Unable to initialize backend"
)
_WARNS = re.compile(rf"{LOGGED_WARNING}|.*{NCCL_INFO}")
# Clients of services, wherever they stand among the frames of an exception.
_CLIENT = re.compile(
    r"/(?:_utils/worker|wandb|mlflow|comet_ml|neptune|clearml|urllib3|requests|httpx|httpcore|http|aiohttp|aiobotocore|boto\w*|s3\w*"
    r"|huggingface_hub|datasets|fsspec|gcsfs|adlfs|ossfs|webdataset|smart_open|google/(?:api_core|auth|cloud|resumable_media)|azure"
    r"|pymongo|pymysql|redis|psycopg2?|asyncpg|sqlalchemy|kafka|paramiko|smtplib|ftplib|ssl)[/.]"
)
# A pipe to a process of this rank's own (a data loader's, a server's), where the last frame is of this.
_OWN_PIPE = re.compile(r"/multiprocessing/")
_ERROR = re.compile(
    r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::|$)|(?:[A-Za-z_]\w*\.)+[A-Z]+[a-z]\w*: "  # noqa: E501
    rf"|.*\bC(?:UDA (?:error|out of memory)|uda failure)\b|.*{_NO_TRANSPORT}"
    r"|.*\bMegascale detects a hang that is likely caused by inconsistent TPU programs"
    r"|.*\b(?:Local (?:length|QP operation|protection|access)|Remote access|Invalid request|Memory window bind"
    r"|Bad response)(?: error)?(?: on \S{1,64})? \(synd 0x"
)
_OWN_COMPLETION = _in_order((_COMPLETION, rf"{_STATUS}(?:1|2|3|4|6|7|8)\b"))
# glibc, of a heap or a stack that the program has broken: the cause where nothing else is told, for it may also break
# while a rank ends.
_BROKEN_MEMORY = re.compile(
    r"double free or corruption|corrupted (?:size vs\. prev_size|double-linked list)|\*\*\* stack smashing detected "
    r"\*\*\*"
    r"|(?:free|realloc|munmap_chunk|malloc\w*)\(\): (?:invalid|corrupted|unaligned|memory "
    r"corruption|mismatching|unsorted|double free)"
)
# They say that something has failed, and what it was stands before or behind them.
_AROUND = re.compile(
    r"(?:\S+\.)?(?:ChildFailedError|DistBackendError|CalledProcessError|ProcessRaisedException|ProcessExitedException)\b"
    r"|ncclSystemError|ncclInternalError|.*\bnccl\w+ failed: (?:unhandled system|internal) error"
    # vLLM, SGLang, TensorRT-LLM, DeepSpeed-MII
    r"|(?:\S+\.)?(?:Async|MQ)?EngineDeadError\b"
    r"|RuntimeError: (?:Engine core initialization failed|Engine process failed to start|Executor failed\.$"
    r"|Worker failed with error |Initialization failed\. Please see the error messages above|Rank \d+ scheduler died"
    r"|Executor worker (?:returned error|died during initialization)|server crashed for some reason)"
    r"|Exception: WorkerProc initialization failed"
    # ZeroMQ, between such a front and what it has started
    r"|zmq\.error\.(?:Again|ContextTerminated)\b"
    # Pools of processes; Horovod
    r"|(?:\S+\.)?(?:BrokenProcessPool|BrokenExecutor|TerminatedWorkerError)\b"
    r"|RuntimeError: Horovod detected that one or more processes exited with non-zero"
    # Ray: of one of its processes; what became of it may follow
    r"|(?:ray\.exceptions\.)?(?:ActorDiedError|RayActorError|WorkerCrashedError): "
    r"|(?:ray\.train\.)?(?:\w+\.)*(?:TrainingFailedError|WorkerGroupError|ControllerError|TuneError)\b"
)
# They say that another process of the same program has ended, and how. What stands above is the cause; where nothing
# does, this is: it may have run elsewhere, or have been killed.
_REPEATS = re.compile(
    # Ray; libtpu, where slices report to the first one
    rf"(?P<{Cause.LOST_PEER.name}>because its (?:worker process|owner) has died|A worker died or was killed"
    r"|[Tt]he worker died unexpectedly while"
    r"|Aborting the coordinator (?:after collecting errors|as an unrecoverable error is reported))"
    # vLLM and SGLang, whose own SIGTERM is no cause; Text Generation Inference; loky, as joblib has it
    rf"|(?P<{Cause.KILLED.name}>[Ee]xit code: -9\b|crashed with exit code -9\b|signaled to shutdown with signal 9\b"
    r"|[Tt]he exit codes of the workers are \{(?:EXIT\(\d{1,3}\), ){0,9}SIGKILL\(-9\)"
    # Slurm, also where a task has failed before
    r"|^slurmstepd: error: \*\*\* (?:JOB|STEP) \S{1,64} ON \S{1,253} CANCELLED AT)"
)
# Exceptions that Python programs raise about their own values, names and types. Those about files, memory, sockets and
# devices have classes of their own, or are RuntimeErrors that name them.
_OF_PROGRAM = re.compile(
    r"(?:Arithmetic|Assertion|Attribute|FloatingPoint|Import|Index|Key|Lookup|ModuleNotFound|Name|NotImplemented|Overflow"
    r"|Recursion|Runtime|Syntax|Type|UnboundLocal|Unicode(?:De|En)code|Value|ZeroDivision|json\.decoder\.JSONDecode)Error"
    r"(?::|$)|(?:Exception|__main__\.\w{1,200})(?::|$)"
)
# In the text of such an exception: what belongs to the node.
_NAMES_NODE = re.compile(
    r"cu(?:da|dnn|blas|fft|rand|solver|sparse)|nv(?:ml|link|idia|rtc)|[nrh]ccl|rocm|miopen|neuron|ascend|habana|triton"
    r"|\b(?:[gnthx]pu|mlu|hip|xla|ecc|xid)s?\b|device|driver|hardware|accelerator|memory|kernel|disk|\bshm\b|network"
    r"|socket|connect|tim(?:ed|e)[- ]?out|killed|signal|input/output|\bI/O\b|errno|\bfiles?\b|\bopen\b|archive|corrupt"
    r"|checksum|\bELF\b|\.so\b|bad_alloc|\bthreads?\b|no space|instruction",
    re.IGNORECASE,
)
# In any line before it: what devices, drivers and their libraries print of a fault.
_NODE_FAULT = re.compile(
    r"\b(?:CUDA|HIP|NCCL|RCCL|HCCL) (?:WARN|[Ee]rror|driver error)|C[Uu][Dd][Aa] failure|\bCU(?:DNN|BLAS|FFT|SOLVER)_"
    r"STATUS_|\bnccl\w{1,32}Error\b|\bNVRM\b|\bXid\b|\bECC\b|NVLink|fallen off the bus|launch failure|illegal (?:memory"
    r"|instruction)|misaligned address|uncorrectable|\[Errno \d|Input/output error|\bBus error\b|Segmentation fault"
)
_AND_THEN = re.compile(
    r"^.*(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):.*$",
    re.MULTILINE,
)
_AT_EXIT = re.compile(
    r"^.*(?:Error in atexit\._run_exitfuncs|Failed to disconnect from coordination service)", re.MULTILINE
)
# Python, at exit or while it goes on.
_IGNORED = re.compile(r"^.*Exception ignored (?:in|on|while)\b", re.MULTILINE)
# What threads and destructors print in C++ while a process ends, be it of an exception of Python before, and what else
# may stand between the two.
_UNWINDS = re.compile(r"terminate called |\[[EF](?:\d{3,4}| ProcessGroup\w{1,16}\.cpp:\d+\]) |.*\bNCCL WARN ")
_BEFORE_IT = re.compile(
    r"\[W\d{3,4} |CUDA kernel errors might be|For debugging consider|Compile with `TORCH|Search for `cuda"
)
# Of its own GPU: no end of a process makes these.
_OWN_GPU = re.compile(r"uncorrectable (?:ECC|NVLink) error|hardware (?:stack )?error")
# Lightning's first rank starts the others of its node, and kills itself as soon as one of them has failed.
_OVER_ITS_CHILD = re.compile(
    r"\bChild process with PID \d+ terminated with code (-?\d{1,3})\. Forcefully terminating all other processes"
)
# torchrun tells what failed after its root cause, before it.
_FAILURES, _ROOT_CAUSE = re.compile(r"^Failures:$"), re.compile(r"^Root Cause\b")


def is_killed(exit_code: int | None, by_signal: int | None) -> bool:
    """Whether a signal from outside ended a process, or the process that a shell ran for it.

    Args:
        exit_code: of the process; a shell's is 128 and the number of the signal.
        by_signal: the signal that ended the process; None: none did.
    """
    return (by_signal if by_signal is not None else (exit_code or 0) - _BY_SIGNAL) in OUTSIDE


def cause_of(tail: str, exit_code: int | None, by_signal: int | None) -> Cause:
    """Return why a rank ended.

    Of exceptions that follow one another the first one counts: the others were raised while it was handled. Of a
    traceback its last line counts. What is printed behind an exception while the process ends counts only where it
    names a fault of the rank's own card or GPU.

    Args:
        tail: the last lines that the rank printed.
        exit_code: of the rank; None: unknown, or ended by a signal.
        by_signal: the signal that ended the rank; None: none did.
    """
    child = _OVER_ITS_CHILD.search(tail)
    if child is not None:
        code = int(child[1])
        return cause_of(tail[: child.start()], code if code > 0 else None, -code if code < 0 else None)
    if is_killed(exit_code, by_signal):
        return Cause.KILLED
    if by_signal in _OF_ITS_OWN:
        return Cause.OWN
    if by_signal == signal.SIGPIPE:
        return Cause.LOST_PEER
    leading, *ignored = _IGNORED.split(_AT_EXIT.split(tail, maxsplit=1)[0])
    behind = [text for text in map(_behind_its_exception, ignored) if last_error(text)]
    return next(filter(None, map(_cause_in_chain, [leading, *behind])), Cause.OWN)


def _behind_its_exception(text: str) -> str:
    """Return what follows an exception that Python ignores, from the rest of the line that says so."""
    lines = text.splitlines()[1:]
    errors = (at for at, line in enumerate(lines) if _is_error(ANY_PREFIXES.sub("", line.strip())))
    return "\n".join(lines[next(errors, len(lines)) + 1 :])


def _cause_in_chain(text: str) -> Cause | None:
    """Return the cause that the first of a text's exceptions names; None where no line tells."""
    parts = _AND_THEN.split(text)
    for place, part in enumerate(parts):
        cause = _cause_in_text(part)
        if cause is Cause.LOST_PEER and place + 1 < len(parts) and _is_of_a_service(part, parts[place + 1]):
            return Cause.OWN
        if cause is not None:
            return cause
    return None


def is_of_program(tail: str) -> bool:
    """Whether the last lines of a rank end with a traceback of an exception that says nothing of its node.

    An exception about a device, its libraries, memory, files or connections may come of the node, and so may one of
    another library. The same holds where an exception before it, or another line, is about these.

    Args:
        tail: the last lines that the rank printed.
    """
    raised = raised_at_the_end(tail)
    if not _OF_PROGRAM.match(raised):
        return False
    lines = [ANY_PREFIXES.sub("", line.strip()) for line in tail.splitlines()]
    errors = [raised, *filter(_is_error, lines)]
    if not all(_OF_PROGRAM.match(line) and not _NAMES_NODE.search(line) for line in errors):
        return False
    return not any(map(_NODE_FAULT.search, lines))


def _cause_in_text(text: str) -> Cause | None:
    """Return the cause that the last telling line of a text names; None where no line tells."""
    bare = (ANY_PREFIXES.sub("", line.strip()) for line in text.splitlines())
    lines = _without_unwinding([line for line in bare if len(line) >= _LEAST_CHARS])
    # Threads warn of a store that is gone while a rank ends, whatever it ends of.
    telling_lines = [line for line in lines if not _WARNS.match(line)]
    cause = _cause_of_lines(telling_lines)
    if cause is None and any(map(_BROKEN_MEMORY.match, telling_lines)):
        return Cause.OWN
    return cause if cause is not None or len(telling_lines) == len(lines) else _cause_of_lines(lines)


def _without_unwinding(lines: list[str]) -> list[str]:
    """Return the lines without those that a process has printed while it ended of the exception directly before."""
    for at, line in enumerate(lines):
        if _UNWINDS.match(line) and _is_behind_an_exception(lines, at):
            after = lines[at:]
            counts = any(
                later.startswith("Traceback (") or _OWN_GPU.search(later) or _is_of_own_card(later) for later in after
            )
            return lines if counts else lines[:at]
    return lines


def _is_behind_an_exception(lines: list[str], at: int) -> bool:
    """Whether an exception that says what it is about stands directly before a line."""
    preceding = next((line for line in reversed(lines[:at]) if not _BEFORE_IT.match(line)), "")
    return not _UNWINDS.match(preceding) and _is_error(preceding) and not _AROUND.match(preceding)


def _is_of_own_card(line: str) -> bool:
    return _has_in_order(_OWN_DEVICE, line)


def _cause_of_lines(lines: list[str]) -> Cause | None:
    lines = _without_later_failures(lines)
    concluding = [ways for ways, reason in _CONCLUDES if any(map(reason.search, lines))]
    repeated = None  # the cause as a line names it that only repeats the death of another process
    for at in range(len(lines) - 1, -1, -1):
        bare = lines[at]
        if _KILLED.search(bare):
            return Cause.KILLED
        of_another = _REPEATS.search(bare)
        if of_another is not None:
            repeated = Cause[str(of_another.lastgroup)]
            continue
        if any(_has_in_order(ways, bare) for ways in concluding):
            continue
        if _is_of_a_peer(lines, at):
            return Cause.OWN if any(map(_is_of_own_card, lines)) else Cause.LOST_PEER
        if _is_error(bare) and not _AROUND.match(bare) and not _is_of_an_own_process(lines, at):
            return Cause.OWN
    return repeated


def _is_of_an_own_process(lines: list[str], at: int) -> bool:
    """Whether an exception says that the pipe to a process of this rank's own has broken, as that process has ended."""
    return bool(_OF_A_SOCKET.match(lines[at])) and any(map(_OWN_PIPE.search, _frames_of(lines, at)[:1]))


def _is_of_a_peer(lines: list[str], at: int) -> bool:
    bare = lines[at]
    if _SERVICE.search(bare):
        return False
    if _LOST_PEER.search(bare) or _has_in_order(_LOST_PEER_BEHIND, bare):
        return True
    if not _SOCKET.search(bare):
        return False
    if _OF_A_SOCKET.match(bare):
        return not _is_of_an_own_process(lines, at) and not any(map(_CLIENT.search, _frames_of(lines, at)))
    if _OF_A_LIBRARY.match(bare):
        return True
    return not any(pattern.search(bare) for pattern in (_RETRIES, _OF_DATA)) and not _is_error(bare)


def _frames_of(lines: list[str], at: int) -> list[str]:
    """Return the traceback's frames above the exception on this line, the last one first.

    Args:
        lines: of the rank.
        at: the place of the exception's line.
    """
    frames = []
    for line in reversed(lines[:at]):
        if line.startswith('File "'):
            frames.append(line)
        elif line.startswith("Traceback (") or _is_error(line):
            break
    return frames


def _is_error(line: str) -> bool:
    return bool(_ERROR.match(line)) or _has_in_order(_OWN_COMPLETION, line)


def _has_in_order(ways: tuple[tuple[re.Pattern[str], ...], ...], line: str) -> bool:
    """Whether a line has the texts of one of these ways, one behind the other."""
    return any(_ends_behind(way, line) for way in ways)


def _ends_behind(way: tuple[re.Pattern[str], ...], line: str) -> bool:
    at = 0
    for pattern in way:
        match = pattern.search(line, at)
        if match is None:
            return False
        at = match.end()
    return True


def _without_later_failures(lines: list[str]) -> list[str]:
    root = next((at for at in range(len(lines) - 1, -1, -1) if _ROOT_CAUSE.match(lines[at])), None)
    if root is None:
        return lines
    failures = next((at for at in range(root - 1, -1, -1) if _FAILURES.match(lines[at])), root)
    return lines[:failures] + lines[root:]


def _is_of_a_service(text: str, later: str) -> bool:
    """Whether a socket's exception led to one of a service's client, so that the connection was not to a peer.

    The frames that would show this may have been cut off.

    Args:
        text: with the first exception.
        later: the text that follows, with the second exception.
    """
    return bool(_OF_A_SOCKET.match(last_error(text)) and _SERVICE.search(last_error(later)))


def last_error(text: str) -> str:
    """Return the last line of a text that names an error, without prefixes; "" = none does."""
    lines = (ANY_PREFIXES.sub("", line.strip()) for line in reversed(text.splitlines()))
    return next((line for line in lines if _is_error(line)), "")
