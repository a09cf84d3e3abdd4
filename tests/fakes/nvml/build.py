"""Compiles the fake libnvidia-ml.so.1, once per content, into the user's cache.

    python -m tests.fakes.nvml.build [--old]      prints the folder; put it into LD_LIBRARY_PATH

The recorded answers of a real H200 (tests/fixtures/nvml-h200.json) become its defaults and, with `busy=1` in the
control file, what each call costs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("nvml.c")
RECORDED = Path(__file__).resolve().parents[2] / "fixtures" / "nvml-h200.json"
SONAME = "libnvidia-ml.so.1"
_GETTERS = {
    "UUID": "UUID",
    "SERIAL": "Serial",
    "NAME": "Name",
    "VBIOS": "VbiosVersion",
    "PCI": "PciInfo",
    "NVLINK": "NvLinkState0",
    "MEMORY_ERRORS": "MemErr_uncorr_vol_loc7",
    "WIDTH": "CurrPcieLinkWidth",
    "INFOROM": "ValidateInforom",
    "REPAIR": "RepairStatus",
    "CLOCKS": "CurrentClocksEventReasons",
    "MARGIN": "MarginTemperature",
    "FABRIC": "GpuFabricInfoV",
}


def library(*, old: bool = False) -> Path:
    """The folder that holds the library; `old`: as of a driver that lacks newer symbols and fields."""
    header = _header(json.loads(RECORDED.read_text()))
    flags = ["-DOLD_DRIVER"] if old else []
    digest = hashlib.sha256("\0".join([SOURCE.read_text(), header, *flags]).encode()).hexdigest()[:16]
    folder = _cache() / "fake-nvml" / digest
    if (folder / SONAME).exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as making:
        (Path(making) / "recorded.h").write_text(header)
        made = Path(making) / SONAME
        command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra"]
        command += [f"-Wl,-soname,{SONAME}", "-I", making, *flags, "-o", str(made), str(SOURCE)]
        subprocess.run(command, check=True)
        made.rename(folder / SONAME)
    return folder


def _cache() -> Path:
    chosen = os.environ.get("MUSTER_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster"


def _header(recorded: dict[str, Any]) -> str:
    getters = recorded["getters"]
    lines = [
        f'#define RECORDED_DRIVER "{recorded["driver"]}"',
        f'#define RECORDED_NAME "{getters["Name"]["ok"]}"',
        f'#define RECORDED_VBIOS "{getters["VbiosVersion"]["ok"]}"',
        f"#define RECORDED_MARGIN {getters['MarginTemperature']['ok']}",
        f"#define MS_INIT {recorded['timings_ms']['nvmlInit']}",
        f"#define MS_FIELD {recorded['timings_ms']['6_fields_avg'] / 6}",
        *(f"#define MS_{name} {getters[getter]['ms']}" for name, getter in _GETTERS.items()),
        "static const struct { unsigned id; int type; unsigned long long value; } recorded_fields[] = {",
        *(
            f"  {{{field}, {answer['type']}, {answer['ull']}ull}},"
            for field, answer in recorded["fields"].items()
            if answer["ret"] == 0
        ),
        "};",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", action="store_true")
    print(library(old=parser.parse_args().old))
