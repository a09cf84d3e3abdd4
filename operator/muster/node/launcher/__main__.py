"""`run.pyz [--] COMMAND...` supervises ranks, `--scan DIR` looks for checkpoints, `--tree DIR` prints the names and
sizes of what lies there.

Everything is imported late, so that an old Python or one without `ssl` gets a sentence instead of a traceback, and a
scan does not load what it does not need.

Tests: tests/unit/launcher/test_running.py.
"""

import os
import sys

USAGE = "usage: run.pyz [--] COMMAND [ARGUMENT...] | --scan DIRECTORY_OR_URL | --tree DIRECTORY_OR_URL"
_USAGE_ERROR = 2
_CONFIGURATION_ERROR = 78  # EX_CONFIG


def main() -> None:
    """Entry point of the archive."""
    if sys.version_info < (3, 8):
        sys.stderr.write("muster: Python 3.8 or later is needed in this image, it has %s\n" % sys.version.split()[0])
        sys.exit(_CONFIGURATION_ERROR)
    arguments = sys.argv[1:]
    modes = {
        "--scan": _scan,
        "--tree": _tree,
        "--scan-on-request": _scan_on_request,
        "--match-steps": _match_steps,
        "--match-preset": _match_preset,
        "--fence-file": _answer_about_fence_file,
        "--set-aside": _move_incomplete,
        "--look-locally": _list_local_checkpoints,
        "--energy": _answer_about_energy,
        "--collectives": _find_collectives,
    }
    if len(arguments) == 2 and arguments[0] in modes:
        modes[arguments[0]](arguments[1])
        return
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command or (arguments[0] != "--" and command[0].startswith("-")):
        sys.stderr.write(USAGE + "\n")
        sys.exit(_USAGE_ERROR)
    _supervise(command)


def _scan(directory: str) -> None:
    from muster.node.launcher.scan_child import finder_of, scan_once

    sys.stdout.write(scan_once(finder_of(directory, _own_pattern())) + "\n")


def _tree(directory: str) -> None:
    from muster.node.launcher.scan_child import files_at, tree_once

    sys.stdout.write(tree_once(files_at(directory), directory) + "\n")


def _scan_on_request(directory: str) -> None:
    from muster.node.launcher.scan_child import scan_on_request

    scan_on_request(directory, _own_pattern())


def _match_steps(pattern: str) -> None:
    from muster.node.launcher.match_child import match_on_request

    match_on_request(pattern, sys.stdin.buffer)


def _match_preset(preset: str) -> None:
    from muster.node.launcher.match_child import read_on_request

    read_on_request(preset, sys.stdin.buffer)


def _answer_about_fence_file(path: str) -> None:
    from muster.node.launcher.fence_file_child import answer_on_request

    answer_on_request(path, sys.stdin.buffer)


def _move_incomplete(directory: str) -> None:
    from muster.node.launcher.mover_child import move_on_request

    move_on_request(directory, sys.stdin.buffer, _say, _own_pattern())


def _list_local_checkpoints(directory: str) -> None:
    from muster.node.launcher.local_child import list_on_request

    list_on_request(directory, sys.stdin.buffer, _say, _own_pattern())


def _own_pattern() -> str:
    """Of the job's own checkpoints, as the operator set it in the pod; "" = the job names none."""
    return os.environ.get("MUSTER_CHECKPOINT_PATTERN", "")


def _say(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


def _answer_about_energy(_: str) -> None:
    from muster.node.launcher.energy_child import answer_on_request

    answer_fd = os.dup(1)
    os.dup2(2, 1)  # the driver's library may print

    def say(line: str) -> None:
        os.write(answer_fd, line.encode())

    answer_on_request(sys.stdin.buffer, say)


def _find_collectives(launcher: str) -> None:
    from muster.node.launcher.collectives_child import version_below

    sys.stdout.write(version_below(int(launcher)) + "\n")
    sys.stdout.flush()


def _supervise(command: "list[str]") -> None:
    try:
        from muster.node.launcher.run import run
    except ImportError as error:
        sys.stderr.write("muster: this image's Python lacks a part of the standard library: %s\n" % error)
        sys.exit(_CONFIGURATION_ERROR)
    run(command)


if __name__ == "__main__":
    main()
