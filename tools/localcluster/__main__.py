"""The command line: `PYTHONPATH=tools python3 -m localcluster COMMAND`."""

from __future__ import annotations

import argparse
import sys

from localcluster.build import binaries
from localcluster.errors import LocalClusterError


def _build(_: argparse.Namespace) -> None:
    print(binaries())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="localcluster", description="A real Kubernetes on one machine.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build etcd, Kubernetes and CoreDNS into the cache")
    build.set_defaults(run=_build)
    return parser


def main() -> int:
    arguments = _parser().parse_args()
    try:
        arguments.run(arguments)
    except LocalClusterError as error:
        print(f"localcluster: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
