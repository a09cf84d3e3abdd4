"""Zygotes whose torch is a double and whose catalog has probes that misbehave: both come by the environment alone."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.checker.probes.prober import Prober

ROOT = Path(__file__).resolve().parents[3]
TORCH = """
class version:
    cuda = None
class cuda:
    pass
__version__ = "0.0.double"
def set_grad_enabled(enabled):
    pass
def get_num_threads():
    return 1
"""
HOOK = '''
import os, signal, subprocess, sys, time
from muster.node.checker.probes import catalog, nvml, outcome

def seconds_in(name):
    """What the test, or a probe, has written into a file; 0 where there is none."""
    try:
        with open(os.path.join(os.environ["CLOCKS"], name)) as file:
            return float(file.read() or 0)
    except FileNotFoundError:
        return 0.0

def pass_time(name, seconds):
    path = os.path.join(os.environ["CLOCKS"], name)
    with open(path + ".new", "w") as file:
        file.write(str(seconds))
    os.rename(path + ".new", path)

real, gone = time.monotonic, 0.0

def monotonic():
    """It jumps where the machine is to have stood still, and runs where time is to have passed."""
    global gone
    gone = min(seconds_in("ahead"), gone + 0.9)
    return real() + seconds_in("still") + gone

time.monotonic = monotonic

def busy(worker):
    """The test may go on: the zygote can read what the probe has said."""
    open(os.path.join(os.environ["CLOCKS"], "busy-%d" % worker.index), "w").close()

def look(library, index):
    with open(os.environ["GPUS"]) as file:
        each = file.read().split()
    used = int(each[index])
    if os.path.exists(os.environ["GPUS"] + ".occupied") and used > 0:  # another process leaves, look by look
        each[index] = str(used - 2**30)
        with open(os.environ["GPUS"], "w") as file:
            file.write(" ".join(each))
    return nvml.Gpu(index, "GPU-%d" % index, "H200", 2**37, used, False, ())

if "GPUS" in os.environ:
    nvml.load = lambda: "library"
    nvml.driver = lambda library: "580"
    nvml.inspect_gpu = look

def occupy(worker):
    with open(os.environ["GPUS"], "w") as file:
        file.write("%d 0" % 2**33)
    open(os.environ["GPUS"] + ".occupied", "w").close()
    return {}

def fine(worker):
    return {"index": worker.index, "crew": worker.crew_size}

def hang(worker):
    worker.phase("busy")
    if worker.index == worker.order.get("who", 0):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("grandchild %d" % child.pid, flush=True)
        busy(worker)
        time.sleep(600)
    say = worker.send_line
    def say_and_be_busy(message):
        say(message)
        busy(worker)
    worker.send_line = say_and_be_busy
    worker.meet("load")
    return {}

def stubborn(worker):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    return hang(worker)

def flood(worker):
    worker.phase("talk")
    while True:
        os.write(1, b"x" * 65536)

def talk(worker):
    os.write(1, b"first words\\n" + b"x" * 1_000_000 + b"\\nlast words\\n")
    raise ValueError("no luck")

def die(worker):
    worker.phase("dying")
    print("about to die", flush=True)
    os.kill(os.getpid(), worker.order["signal"])

def leave(worker):
    os._exit(9)

def meet(worker):
    if worker.index == 0:
        time.sleep(0.3)
        if worker.order.get("absent"):
            raise outcome.ProblemError(outcome.IN_USE, "somebody has it")
    came = time.monotonic()
    worker.meet("load")
    return {"came": came, "began": time.monotonic()}

def freeze(worker):
    os.kill(os.getppid(), signal.SIGSTOP)
    pass_time("still", worker.order["seconds"])
    os.kill(os.getppid(), signal.SIGCONT)
    time.sleep(0.5)
    return {}

def forsake(worker):
    if worker.index == 0:
        raise outcome.ProblemError(outcome.FAILED, "no memory")
    time.sleep(600)

def starve(worker):
    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes")

def garble(worker):
    os.write(worker._tell, b"no json\\n" + b"y" * 200_000 + b"\\n")
    return {"fine": True}

def descriptors(worker):
    return {"open": sorted(int(name) for name in os.listdir("/proc/self/fd"))}

for probe in (fine, occupy, hang, stubborn, flood, talk, die, leave, meet, starve, garble, freeze, descriptors):
    catalog.PROBES[probe.__name__] = catalog.Probe(probe)
catalog.PROBES["forsake"] = catalog.Probe(forsake, members=True)
'''

Start = Callable[..., Prober]


def write_double(folder: Path, hook: str, torch: str = TORCH) -> None:
    """A folder for PYTHONPATH with a double of torch, and with code that runs before all else."""
    (folder / "torch").mkdir(exist_ok=True)
    (folder / "torch/__init__.py").write_text(textwrap.dedent(torch))
    (folder / "torch/distributed.py").write_text("")
    (folder / "sitecustomize.py").write_text(hook)


class Clocks:
    """Moves the zygote's clock on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def is_busy(self, index: int = 0) -> bool:
        """Whether the probe's process hangs now, and the zygote can know where."""
        return (self._folder / f"busy-{index}").exists()

    def pass_time(self, seconds: float) -> None:
        """So much time passes while the machine runs."""
        (self._folder / "ahead.new").write_text(str(seconds))
        (self._folder / "ahead.new").rename(self._folder / "ahead")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a zygote with this torch."""
    started = []

    def begin(torch: str = TORCH, **environment: str) -> Prober:
        write_double(tmp_path, HOOK, torch)
        path = os.pathsep.join([str(tmp_path), str(ROOT / "operator")])
        prober = Prober(environment={**os.environ, "PYTHONPATH": path, "CLOCKS": str(tmp_path), **environment})
        started.append(prober)
        return prober

    yield begin
    for prober in started:
        prober.close()


@pytest.fixture
def clocks(tmp_path: Path) -> Clocks:
    """Of the zygotes of this test."""
    return Clocks(tmp_path)


@pytest.fixture
def zygote(start: Start) -> Prober:
    """A zygote that is ready."""
    prober = start()
    prober.wait_until_ready(PATIENCE_SECONDS)
    return prober
