"""Zygotes whose torch is a double and whose catalog has probes that misbehave: both come by the environment alone."""

import os
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.preflight.probes.prober import Prober

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
from muster.preflight.probes import catalog, nvml, outcome

def look(library, index):
    with open(os.environ["GPUS"]) as file:
        used = int(file.read().split()[index])
    return nvml.Gpu(index, "GPU-%d" % index, "H200", 2**37, used, False, ())

if "GPUS" in os.environ:
    nvml.load = lambda: "library"
    nvml.driver = lambda library: "580"
    nvml.look = look

FREE = """
import os, time
time.sleep(1)
path = os.environ["GPUS"]
with open(path + ".new", "w") as file:
    file.write("0 0")
os.rename(path + ".new", path)
"""

def occupy(worker):
    with open(os.environ["GPUS"], "w") as file:
        file.write("%d 0" % 2**33)
    subprocess.Popen([sys.executable, "-S", "-c", FREE], start_new_session=True)
    return {}

def fine(worker):
    return {"index": worker.index, "crew": worker.crew}

def hang(worker):
    worker.phase("busy")
    if worker.index == worker.order.get("who", 0):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("grandchild %d" % child.pid, flush=True)
        time.sleep(600)
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
    time.sleep(worker.order["seconds"])
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


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a zygote with this torch."""
    started = []

    def begin(torch: str = TORCH, **environment: str) -> Prober:
        (tmp_path / "torch").mkdir(exist_ok=True)
        (tmp_path / "torch/__init__.py").write_text(textwrap.dedent(torch))
        (tmp_path / "torch/distributed.py").write_text("")
        (tmp_path / "sitecustomize.py").write_text(HOOK)
        path = os.pathsep.join([str(tmp_path), str(ROOT / "operator")])
        prober = Prober(environment={**os.environ, "PYTHONPATH": path, **environment})
        started.append(prober)
        return prober

    yield begin
    for prober in started:
        prober.close()


@pytest.fixture
def zygote(start: Start) -> Prober:
    """A zygote that is ready."""
    prober = start()
    prober.wait_until_ready(120)
    return prober
