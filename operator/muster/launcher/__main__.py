"""`run.pyz [--] COMMAND...` supervises ranks, `--scan DIR` looks for checkpoints.

Everything is imported late, so that an old Python or one without `ssl` gets a sentence instead of a traceback, and a
scan does not load what it does not need.
"""

import sys

USAGE = "usage: run.pyz [--] COMMAND [ARGUMENT...] | --scan DIRECTORY"
_USAGE_ERROR = 2
_CONFIGURATION_ERROR = 78  # EX_CONFIG


def main() -> None:
    """Entry point of the archive."""
    if sys.version_info < (3, 8):
        sys.exit("muster: Python 3.8 or later is needed in this image, it has %s" % sys.version.split()[0])
    arguments = sys.argv[1:]
    modes = {
        "--scan": _scan,
        "--scan-on-request": _scan_on_request,
        "--match-steps": _match_steps,
        "--open-marker": _open_marker,
        "--read-marker": _read_marker,
    }
    if len(arguments) == 2 and arguments[0] in modes:
        modes[arguments[0]](arguments[1])
        return
    if arguments[:1] == ["--claim-marker"] and len(arguments) == 3:
        _claim_marker(arguments[1], int(arguments[2]))
        return
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command or (arguments[0] != "--" and command[0].startswith("-")):
        sys.stderr.write(USAGE + "\n")
        sys.exit(_USAGE_ERROR)
    _supervise(command)


def _scan(directory: str) -> None:
    from muster.checkpoint.find import Finder
    from muster.launcher.scan_child import scan_once

    sys.stdout.write(scan_once(Finder(directory)) + "\n")


def _scan_on_request(directory: str) -> None:
    from muster.launcher.scan_child import scan_on_request

    scan_on_request(directory)


def _match_steps(pattern: str) -> None:
    from muster.launcher.match_child import match_on_request

    match_on_request(pattern, sys.stdin.buffer)


def _read_marker(path: str) -> None:
    from muster.launcher.marker_child import read_marker

    sys.stdout.write(read_marker(path) + "\n")


def _open_marker(path: str) -> None:
    from muster.launcher.marker_child import read_marker

    sys.stdout.write(read_marker(path, makes=True) + "\n")


def _claim_marker(path: str, attempt: int) -> None:
    from muster.launcher.marker_child import claim_marker

    sys.stdout.write(claim_marker(path, attempt) + "\n")


def _supervise(command: "list[str]") -> None:
    try:
        from muster.launcher.run import run
    except ImportError as error:
        sys.stderr.write("muster: this image's Python lacks a part of the standard library: %s\n" % error)
        sys.exit(_CONFIGURATION_ERROR)
    run(command)


if __name__ == "__main__":
    main()
