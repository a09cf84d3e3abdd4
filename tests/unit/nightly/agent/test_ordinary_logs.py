"""Megabytes of what healthy machines and jobs log: nothing in them is a finding, a step or the cause of an end."""

from collections.abc import Iterator
from random import Random

from tests.unit.reports.test_kernel_lines import CASES, NOTHING, WAYS, read

from muster.node.launcher.first_failure import find
from muster.node.launcher.printed import Reader
from muster.protocol.presets import AUTO
from muster.recovery.last_lines import Cause, cause_of

CHARS = 4_000_000
LINES = 200  # of a rank's output at its end
# It begins no message of several lines, and ends any.
BETWEEN = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.148.08"
BOOT = (
    "Linux version 6.12.{0}-amd64 (gcc 12.2.0) #1 SMP PREEMPT_DYNAMIC",
    "BIOS-e820: [mem 0x{0:016x}-0x{1:016x}] usable",
    "pci 0000:{0:02x}:00.0: BAR 0 [mem 0x{1:08x}-0x{1:08x} 64bit pref]",
    "mlx5_core 0000:{0:02x}:00.0: firmware version: 28.39.{1}",
    "mlx5_core 0000:{0:02x}:00.0 eth{0}: Link up",
    "nvme nvme{0}: {1}/0/0 default/read/poll queues",
    "EXT4-fs (nvme{0}n1p1): mounted filesystem with ordered data mode. Quota mode: none.",
    "XFS (dm-{0}): Ending clean mount",
    "BTRFS info (device sda{0}): using crc32c (crc32c-intel) checksum algorithm",
    "EDAC MC{0}: Giving out device to module skx_edac controller Skylake Socket#0 IMC#{0}",
    "mce: CPU{0}: Thermal monitoring enabled (TM1)",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth{0}: link becomes ready",
    "python3[{1}]: segfault at {0:x} ip 00007f3c sp 00007ffd error 4 in libc.so.6",
    "Memory cgroup out of memory: Killed process {1} (python3) total-vm:{0}kB, anon-rss:{1}kB",
    "usb 1-{0}: USB disconnect, device number {1}",
    "loop{0}: detected capacity change from 0 to {1}",
)
OUTPUT = (
    "[rank{0}]: loading shard {1} of 4096",
    "INFO 11-29 03:00:00 [core.py:77] epoch {0} of the data begins at sample {1}",
    "gpu-17:{1}:4712 [{0}] NCCL INFO Channel 00/0 : {0}[{0}] -> 7[7] via P2P/CUMEM",
    "gpu-17:{1}:4712 [{0}] NCCL INFO comm 0x55d0 rank {0} nranks 64 - Init COMPLETE",
    "Deleted step {1}.",
    "validate step: {1}  loss: 2.{0}  memory: 61.30GiB(77.31%)",
    "Epoch {0}: val_loss reached 2.{1}",
    "Map: {0}%|###       | {1}/60000 [00:01<00:10, 5012.11 examples/s]",
    "Setting OMP_NUM_THREADS environment variable for each process to be {0}",
    "wandb: Run data is saved locally in /runs/{1}",
    "warnings.warn('{1} parameters are not used')",
)


def lines(random: Random, formats: tuple[str, ...]) -> Iterator[str]:
    while True:
        yield random.choice(formats).format(random.randrange(9), random.randrange(65_536))


def test_a_healthy_machine_s_kernel_log_has_no_finding() -> None:
    random = Random(55)
    nothing = [str(case.given) for case in CASES if case.right == NOTHING]
    ways, boot, stream, size = list(WAYS.values()), lines(random, BOOT), [], 0
    while size < CHARS:
        way = random.choice(ways)
        message = random.choice(nothing) if random.random() < 0.5 else next(boot)
        stream += [*way(message.split("\n")), *way([BETWEEN])]
        size += len(message) + len(BETWEEN)
    assert list(read(stream)) == []


def test_a_rank_s_ordinary_output_has_no_step_and_no_cause_of_its_end() -> None:
    output, reader, size, found = lines(Random(55), OUTPUT), Reader(AUTO), 0, []
    while size < CHARS:
        part = [next(output) for _ in range(LINES)]
        found += [one for line in part if (one := reader.read(0, line.encode())) and one.step is not None]
        text = "\n".join(part)
        assert find([text.encode()]) is None
        assert cause_of(text, 1, None) is Cause.OWN
        size += len(text)
    assert found == []
    assert (reader.proposal(), reader.looks_like) == (None, "")
