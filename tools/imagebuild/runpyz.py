"""Packs the launcher into one file, `run.pyz`, that any Python >= 3.8 runs.

The standard library's zipapp stores the time of each file; here equal sources give equal bytes, so that an unchanged
launcher is an unchanged image.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from pathlib import Path

ROOMS = ("protocol", "node/launcher", "node/checkpoint")
_MAIN = b"""from muster.node.launcher.__main__ import main
raise SystemExit(main())
"""
_SHEBANG = b"#!/usr/bin/env python3\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def archive_members(package: Path) -> dict[str, bytes]:
    """Return the files of the archive by name; `package` is the folder `operator/muster`."""
    sources = [package / "__init__.py", package / "node" / "__init__.py"]
    for room in ROOMS:
        sources += (package / room).rglob("*.py")
    members = {f"muster/{path.relative_to(package).as_posix()}": path.read_bytes() for path in sources}
    members["__main__.py"] = _MAIN
    return members


def write_archive(package: Path, output: Path) -> None:
    """Write `run.pyz` to `output`; a reader sees the old file or the new one, never half of it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f"{output.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in sorted(archive_members(package).items()):
                entry = zipfile.ZipInfo(name, _EPOCH)
                entry.external_attr = 0o644 << 16
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)
    temporary.chmod(0o644)
    temporary.replace(output)


def main() -> None:
    parser = argparse.ArgumentParser(prog="imagebuild.runpyz", description="Pack the launcher into run.pyz.")
    parser.add_argument("--output", type=Path, default=Path("build/run.pyz"))
    output = parser.parse_args().output
    write_archive(Path(__file__).parents[2] / "operator" / "muster", output)
    print(f"{output} ({output.stat().st_size} bytes)")


if __name__ == "__main__":
    main()
