"""`kubectl muster page` as a whole program, ended from a terminal."""

import signal
from collections.abc import Callable
from pathlib import Path

from tests.unit.cli.forwarding import assert_that_a_signal_ends_it


def test_control_c_ends_it_and_its_kubectl_without_a_word(kubectl: Callable[[str], Path], tmp_path: Path) -> None:
    assert_that_a_signal_ends_it(kubectl, tmp_path, signal.SIGINT)
