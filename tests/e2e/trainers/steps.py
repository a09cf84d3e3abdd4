"""A trainer that starts in 0.2 s: a barrier over TCP instead of gradients, for tests in which torch is not the point.

Rank 0 listens at MASTER_ADDR:MASTER_PORT. In each step every rank sends a number that depends on step and rank only and
gets the sum back; a running hash of the sums are the "weights", so that a run with faults must end with the weights of
one without. It fails like gloo does: at once when a connection is reset or closed, never when a peer is silent.

Rank 0 saves `step-N` every few steps (and every rank, more often, to a disk of its node's own if there is one):
assembled under a hidden name, the manifest renamed into it last, the directory renamed last of all. The state in it
names the attempt and the rank that published it, and when (machine-wide monotonic clock), so that a test can prove that
no old attempt published after a new one started.

Each rank appends its story to RUN_DIR/log-<rank>.jsonl. Standard library only.
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sys
import time

CONNECT_SECONDS = 60.0
STATE_NAME, MANIFEST_NAME = "state.json", "muster-checkpoint.json"
INITIAL_WEIGHTS = "0" * 64


class Saver:
    """Saves at once, or in a process of its own that may outlive its rank, one at a time."""

    def __init__(self, arguments, attempt, rank, log):
        self._arguments = arguments
        self._attempt, self._rank = attempt, rank
        self._log = log
        self._pid = 0

    def __call__(self, step, weights):
        if not self._arguments.asynchronous_seconds:
            self._save(step, weights)
            return
        self.wait()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                time.sleep(self._arguments.asynchronous_seconds)
                self._save(step, weights)
            finally:
                os._exit(0)

    def _save(self, step, weights):
        path = save(self._arguments.checkpoint_dir, step, weights, self._attempt, self._rank)
        self._log("checkpoint", step=step, path=path)
        keep_newest(self._arguments.checkpoint_dir, self._arguments.keep)

    def wait(self):
        """Until what was begun is published."""
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0


class PeerLostError(Exception):
    """A connection of the gang was closed or reset."""


class Log:
    """Appends one JSON line per event, and prints it."""

    def __init__(self, run_dir, attempt, rank):
        self._path = pathlib.Path(run_dir, f"log-{rank}.jsonl") if run_dir else None
        self._common = {"attempt": attempt, "rank": rank, "host": socket.gethostname()}

    def __call__(self, event, quiet=False, **fields):
        line = dict(self._common, event=event, monotonic=time.monotonic(), wall=time.time(), **fields)
        text = json.dumps(line)
        if self._path:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                os.write(descriptor, text.encode() + b"\n")
            finally:
                os.close(descriptor)
        if quiet:
            return
        print(f"step {fields['step']} of attempt {self._common['attempt']}" if event == "step" else text, flush=True)


class Line:
    """Newline-delimited JSON over one socket."""

    def __init__(self, connection):
        self._connection = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = connection.makefile("rb")

    def send(self, message):
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise PeerLostError(str(error)) from error

    def receive(self):
        try:
            text = self._stream.readline()
        except OSError as error:
            raise PeerLostError(str(error)) from error
        if not text.endswith(b"\n"):
            raise PeerLostError("connection closed by a peer")
        return json.loads(text)


class Gang:
    """All ranks of one attempt, joined through rank 0."""

    def __init__(self, rank, world_size, address, port, attempt):
        self._rank = rank
        self._lines = self._gather(world_size, port, attempt) if rank == 0 else [self._join(address, port, attempt)]

    @staticmethod
    def _gather(world_size, port, attempt):
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("", port))
        server.listen(world_size)
        server.settimeout(CONNECT_SECONDS)
        lines = {}
        while len(lines) < world_size - 1:
            connection, _ = server.accept()
            connection.settimeout(None)
            line = Line(connection)
            hello = line.receive()
            if hello["attempt"] == attempt:
                lines[hello["rank"]] = line
        server.close()
        return [lines[rank] for rank in sorted(lines)]

    def _join(self, address, port, attempt):
        until = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                connection = socket.create_connection((address, port), timeout=5)
                break
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)
        connection.settimeout(None)
        line = Line(connection)
        line.send({"rank": self._rank, "attempt": attempt})
        return line

    def exchange(self, step, value, is_last=False, asked=0):
        """Sum of the values of all ranks, whether rank 0 says that it is the last, and the newest request that any of
        them has read; returns when all have sent theirs."""
        if self._rank != 0:
            self._lines[0].send({"step": step, "value": value, "asked": asked})
            answer = self._lines[0].receive()
        else:
            answer = {"step": step, "value": value, "is_last": is_last, "asked": asked}
            for line in self._lines:
                message = line.receive()
                if message["step"] != step:
                    raise SystemExit(f"a peer is at step {message['step']}, this rank at {step}")
                answer["value"] += message["value"]
                answer["asked"] = max(answer["asked"], message["asked"])
            for line in self._lines:
                line.send(answer)
        return answer["value"], answer["is_last"], answer["asked"]


def gradient(step, rank):
    return int(hashlib.sha256(b"%d/%d" % (step, rank)).hexdigest()[:12], 16)


def updated(weights, total):
    return hashlib.sha256(f"{weights}/{total}".encode()).hexdigest()


def save(directory, step, weights, attempt, rank):
    """Publish step-N; one that is there already is replaced."""
    final = pathlib.Path(directory, f"step-{step}")
    assembled = pathlib.Path(directory, f".saving-{step}-{attempt}-{rank}")
    shutil.rmtree(assembled, ignore_errors=True)
    assembled.mkdir(parents=True)
    state = {"step": step, "weights": weights, "attempt": attempt, "rank": rank}
    state.update(monotonic=time.monotonic(), wall=time.time())
    data = json.dumps(state).encode()
    write(assembled / STATE_NAME, data)
    manifest = {"step": step, "files": [{"path": STATE_NAME, "bytes": len(data)}]}
    write(assembled / f"{MANIFEST_NAME}.new", json.dumps(manifest).encode())
    (assembled / f"{MANIFEST_NAME}.new").rename(assembled / MANIFEST_NAME)
    if final.exists():
        old = pathlib.Path(directory, f".replaced-{step}-{attempt}-{rank}")
        final.rename(old)
        assembled.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        assembled.rename(final)
    return str(final)


def write(path, data):
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def keep_newest(directory, count):
    names = [path.name for path in pathlib.Path(directory).iterdir()]
    steps = sorted(int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit())
    for step in steps[: -max(2, count)]:
        shutil.rmtree(pathlib.Path(directory, f"step-{step}"), ignore_errors=True)


def resume(arguments, log):
    path = os.environ.get("MUSTER_RESUME_PATH")
    if not path or arguments.forget:
        return 0, INITIAL_WEIGHTS
    with pathlib.Path(path, STATE_NAME).open() as stream:
        state = json.load(stream)
    wanted = os.environ.get("MUSTER_RESUME_STEP")
    if wanted is not None and int(wanted) != state["step"]:
        raise SystemExit(f"{path} holds step {state['step']}, not {wanted}")
    log("resumed", step=state["step"], path=path)
    return state["step"], state["weights"]


def start_orphan(log, writes):
    """A data loader that outlives its parent: forked twice, in a session of its own, holding the rank's output.

    One that writes tells the journal so five times a second for as long as it lives.
    """
    read, wrote = os.pipe()
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0:
            os.close(read)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(wrote, b"%d\n" % os.getpid())
            os.close(wrote)
            while True:
                time.sleep(0.2 if writes else 3600)
                if writes:
                    log("orphan", quiet=True)
        os._exit(0)
    os.waitpid(first, 0)
    os.close(wrote)
    with os.fdopen(read) as stream:
        log("loader", pid=int(stream.readline()))


def may_fault(arguments, kind):
    """Whether to do it: each time with --always, else once in the life of the job."""
    if arguments.always:
        return True
    try:
        os.close(os.open(pathlib.Path(arguments.run_dir, f"fault-{kind}"), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True


def fault(arguments, step, log):
    """What this rank has been told to do wrong before it finishes this step."""
    if step == arguments.hang_at and may_fault(arguments, "hang"):
        log("hang", step=step)
        while True:
            time.sleep(3600)
    if step == arguments.fail_at and may_fault(arguments, "fail"):
        log("fail", step=step, exit_code=arguments.exit_code)
        sys.stderr.write(f"steps.py: told to fail at step {step} with exit code {arguments.exit_code}\n")
        sys.exit(arguments.exit_code)


def find_corruption(arguments, step, log):
    """Say that this rank's weights have been wrong for a while, and end."""
    if step != arguments.find_corruption_at or not may_fault(arguments, "corruption-found"):
        return
    good = arguments.corrupt_at - 1 if arguments.corrupt_at else None
    log("corruption", step=step, good=good)
    if os.environ.get("MUSTER_PROGRESS"):
        told = {"corruption": "NonFiniteLoss", "foundAt": step, "lastGood": good}
        with pathlib.Path(os.environ["MUSTER_PROGRESS"]).open("a") as stream:
            stream.write(json.dumps(told) + "\n")
    sys.exit(1)


def train(arguments, rank, world_size, attempt, log):
    step, weights = resume(arguments, log)
    gang = Gang(rank, world_size, os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0")), attempt)
    log("ready", step=step)
    progress = os.environ.get("MUSTER_PROGRESS")
    saver = Saver(arguments, attempt, rank, log)
    is_last = step >= arguments.steps
    followed = 0  # the highest number of a request that the ranks have agreed on
    while not is_last:
        while attempt < arguments.hold_until_attempt and step == arguments.hold_at:
            time.sleep(0.1)
        step += 1
        began = time.time()
        time.sleep(arguments.step_seconds)
        if rank == arguments.fault_rank % world_size:
            fault(arguments, step, log)
            find_corruption(arguments, step, log)
        readable = readable_request() if arguments.leaves else 0
        total, is_last, newest = gang.exchange(step, gradient(step, rank), step >= last_step(arguments), readable)
        number, leaves = divmod(newest, 2)
        asked, followed = number > followed, max(number, followed)
        weights = updated(weights, total)
        if (
            rank == arguments.fault_rank % world_size
            and step == arguments.corrupt_at
            and may_fault(arguments, "corrupt")
        ):
            weights = updated(weights, "a bit that flipped")
        log("step", step=step, weights=weights, began=began)
        told = {"step": step, "request": number} if asked else {"step": step}
        if progress:
            with pathlib.Path(progress).open("a") as stream:
                stream.write(json.dumps(told) + "\n")
        if rank == 0 and arguments.checkpoint_dir and (step % arguments.checkpoint_every == 0 or is_last or asked):
            saver(step, weights)
        if arguments.local_dir and step % arguments.local_every == 0:
            save(arguments.local_dir, step, weights, attempt, rank)
            keep_newest(arguments.local_dir, 2)
        if asked:
            log("asked", step=step, number=number, leaves=leaves)
        if asked and leaves and not is_last:
            leave(arguments, step, saver, gang, log)
    saver.wait()
    gang.exchange(step + 1, 0)  # nobody leaves before the last checkpoint is published
    log("done", step=step, weights_sha256=weights)


def readable_request():
    """What this rank reads of Muster's request: twice its number, and 1 more to leave; 0 without one."""
    try:
        request = json.loads(pathlib.Path(os.environ.get("MUSTER_REQUESTS", "")).read_text())
    except (FileNotFoundError, IsADirectoryError):
        return 0
    known = request["kind"] in ("Save", "Leave")
    return 2 * request["number"] + (request["kind"] == "Leave") if known else 0


def leave(arguments, step, saver, gang, log):
    """End, or wait for the end, once the checkpoint that was asked for is published."""
    saver.wait()
    gang.exchange(step + 1, 0)
    log("left", step=step)
    if arguments.leaves == "wait":
        while True:
            time.sleep(3600)
    sys.exit(int(arguments.leaves))


def last_step(arguments):
    """What somebody has written into the file for it, --steps until then."""
    try:
        told = arguments.last_step_file and pathlib.Path(arguments.run_dir, arguments.last_step_file).read_text()
        return int(told) if told else arguments.steps
    except FileNotFoundError:
        return arguments.steps


def exit_when_told(number, _frame):
    """A failure of the trainer's own making, at a moment that somebody else chooses."""
    sys.stderr.write("ValueError: the loss is NaN\n")
    sys.stderr.flush()
    os._exit(3)


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--checkpoint-dir", default=os.environ.get("CHECKPOINT_DIR", ""))
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--local-dir", default="", help="on the node's own disk, where every rank saves")
    parser.add_argument("--local-every", type=int, default=3)
    parser.add_argument("--keep", type=int, default=1000, help="checkpoints kept, at least 2")
    parser.add_argument("--run-dir", default=os.environ.get("RUN_DIR", ""))
    parser.add_argument("--fail-at", type=int, metavar="STEP")
    parser.add_argument("--exit-code", type=int, default=1)
    parser.add_argument("--corrupt-at", type=int, metavar="STEP", help="whose weights are wrong from here on")
    parser.add_argument("--find-corruption-at", type=int, metavar="STEP", help="where it says so, and ends")
    parser.add_argument("--hang-at", type=int, metavar="STEP")
    parser.add_argument("--fault-rank", type=int, default=-1, help="who fails or hangs; -1 = the last rank")
    parser.add_argument("--always", action="store_true", help="fail or hang in every attempt, not only once")
    parser.add_argument("--hold-at", type=int, metavar="STEP", help="where an attempt waits for its fault")
    parser.add_argument("--hold-until-attempt", type=int, default=2, help="the first attempt that does not wait there")
    parser.add_argument("--forget", action="store_true", help="never load a checkpoint")
    parser.add_argument(
        "--leaves", choices=("0", "3", "wait"), help="it follows requests: to leave, it ends with this code or waits"
    )
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--orphan-loader", action="store_true")
    parser.add_argument("--orphan-writes", action="store_true", help="the same, and it goes on writing to the journal")
    parser.add_argument(
        "--asynchronous-seconds", type=float, default=0, help="a save takes so long, in another process; 0: no time"
    )
    parser.add_argument(
        "--last-step-file", default="", help="in the run directory, where the number of the last step will be written"
    )
    arguments = parser.parse_args()
    if (
        not arguments.run_dir
        and not arguments.always
        and (arguments.fail_at or arguments.hang_at or arguments.corrupt_at or arguments.find_corruption_at)
    ):
        parser.error("--run-dir or RUN_DIR is needed to fail only once")
    return arguments


def main():
    arguments = parse()
    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    attempt = int(os.environ.get("MUSTER_ATTEMPT", "0"))
    for directory in (arguments.run_dir, arguments.checkpoint_dir):
        if directory:
            pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    log = Log(arguments.run_dir, attempt, rank)
    log("start", pid=os.getpid(), node=os.environ.get("NODE_NAME", ""))
    signal.signal(signal.SIGUSR1, exit_when_told)
    if arguments.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arguments.orphan_loader or arguments.orphan_writes:
        start_orphan(log, arguments.orphan_writes)
    try:
        train(arguments, rank, world_size, attempt, log)
    except PeerLostError as error:
        log("lost", error=str(error))
        sys.exit(f"steps.py: rank {rank} lost the gang: {error}")


if __name__ == "__main__":
    main()
