"""`python -m chart --version V --images FILE --out DIR`: write the charts muster-V.tgz and muster-definitions-V.tgz.

FILE is JSON: the released images by name, each as "registry/repository@sha256:...". The archives depend on nothing but
the manifests, the version and that file.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from chart.charts import write_charts
from chart.variants import ChartError
from imagebuild.report import BuildError
from release.checks import ReleaseError, require_semantic


def main(arguments: list[str] | None = None) -> int:
    """Write both charts; returns the exit code."""
    parser = argparse.ArgumentParser(prog="chart", description="Make the Helm charts.")
    parser.add_argument("--version", required=True, help="of the release, e.g. 0.2.0")
    parser.add_argument("--images", required=True, type=Path, help="JSON: registry/repository@sha256:... by name")
    parser.add_argument("--out", required=True, type=Path, help="folder of the archives")
    asked = parser.parse_args(arguments)
    try:
        require_semantic(asked.version)
        asked.out.mkdir(parents=True, exist_ok=True)
        write_charts(asked.out, asked.version, read_images(asked.images))
    except (BuildError, ChartError, ReleaseError, OSError) as error:
        print(f"chart: {error}", file=sys.stderr)
        return 1
    return 0


def read_images(path: Path) -> dict[str, str]:
    """The released images by name.

    Raises:
        ChartError: the file has something else.
        OSError: it cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except msgspec.DecodeError as error:
        raise ChartError(f'{path}: {error}: give JSON, {{"operator": "registry/repository@sha256:..."}}') from error


if __name__ == "__main__":
    sys.exit(main())
