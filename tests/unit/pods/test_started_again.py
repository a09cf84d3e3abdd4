"""A shell line that ends at its second start in one pod is told, as bash itself runs it, and others are not."""

import subprocess
from pathlib import Path

import pytest
from tests.unit.status.test_warnings import started_with

from muster.pods.launching import start_warnings
from muster.pods.started_again import ends_at_second_start
from muster.protocol.starters import LONGEST_LINE

TRAINS = "touch trained"
ENDS = [
    f"git clone -q code /tmp && {TRAINS}",
    f"export NODE_RANK=$RANK && unset RANK && git clone -q code work && cd work && {TRAINS}",
    f"mkdir out && {TRAINS} 2>&1 | cat",
    f"set -euo pipefail\nmkdir out\n{TRAINS}",
    f"set -o errexit; D=out; mkdir $D; {TRAINS}",
]
GOES_ON = [
    f"git clone -q code work; {TRAINS}",
    f"git clone -q code work || true; {TRAINS}",
    f"[ -d work ] || git clone -q code work && {TRAINS}",
    f"test -d work || git clone -q code work; {TRAINS}",
    f"rm -rf work && git clone -q code work && {TRAINS}",
    f"if [ ! -d work ]; then git clone -q code work; fi && {TRAINS}",
    f"set -e; mkdir -p out; {TRAINS}",
    f"set -e; mkdir --parents out; {TRAINS}",
    f"set -e; mkdir out || true; {TRAINS}",
    f"mkdir out; {TRAINS}",
    f"mkdir out && echo made; {TRAINS}",
    f"mkdir out && cp a out || true; {TRAINS}",
    f"set -e; mkdir out && echo made; {TRAINS}",
    f"set -e; set +e; mkdir out; {TRAINS}",
    f"rmdir out; mkdir out && {TRAINS}",
    f"git pull && {TRAINS}",
    f"cat <<'END' && {TRAINS}\nmkdir out &&\nEND",
]
UNCLEAR = [
    "git clone code $(mktemp -d) && python3 train.py",
    "cd $(mktemp -d) && git clone code && python3 train.py",
    "mkdir /out/$HOSTNAME-$(date +%s) && python3 train.py",
]


def bash(line: str, place: Path) -> bool:
    """Whether a line runs to its end."""
    (place / "trained").unlink(missing_ok=True)
    (place / "work" / "trained").unlink(missing_ok=True)
    subprocess.run(["bash", "-c", line], cwd=place, check=False, capture_output=True)
    return (place / "trained").exists() or (place / "work" / "trained").exists()


@pytest.mark.parametrize("line", ENDS)
def test_a_line_that_ends_at_its_second_start_is_told(line: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "code"], cwd=tmp_path, check=True)
    at_home = line.replace(" /tmp ", " work ")
    assert (bash(at_home, tmp_path), bash(at_home, tmp_path)) == (True, False)
    assert ends_at_second_start(["bash", "-c", line]) in line.replace("$D", "out")
    assert ends_at_second_start(["bash", "-c", line]) != ""


@pytest.mark.parametrize("line", [*GOES_ON, *UNCLEAR])
def test_a_line_that_goes_on_or_may_go_on_is_not(line: str) -> None:
    assert ends_at_second_start(["bash", "-c", line]) == ""


def test_options_of_the_shell_count_and_a_line_too_long_is_left_alone() -> None:
    line = f"mkdir out; {TRAINS}"
    assert ends_at_second_start(["bash", "-euo", "pipefail", "-c", line]) == "mkdir out"
    assert ends_at_second_start(["bash", "-lc", line]) == ""
    assert ends_at_second_start(["python3", "train.py"]) == ""
    assert ends_at_second_start(["bash", "-ec", line + " " * LONGEST_LINE]) == ""


def test_the_warning_says_what_to_write_and_holds_no_job() -> None:
    (warned,) = start_warnings(started_with("bash", "-ec", "mkdir out; python3 train.py"))
    assert (warned.reason, warned.holds) == ("CannotStartAgain", False)
    assert warned.message == (
        "`mkdir out` in the shell's line fails where its directory is there, and the line ends with it: ranks are "
        "started again in pods that stay. Write `mkdir -p`"
    )
