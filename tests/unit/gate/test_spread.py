"""A process of the integration tests keeps to one control plane while files of it wait."""

import pytest
from tests.integration.spread import control_plane_of, next_file

API, KUBE = "tests/integration/api/test_refused.py", "tests/integration/kube/test_client.py"
INSTALL, LONG = "tests/integration/install/test_admission.py", "tests/integration/install/test_rights.py"
CONTROLLER = "tests/integration/nightly/controller/test_cost.py"
ALL = (API, INSTALL, CONTROLLER, KUBE)
RULES = "tests/integration/monitoring/test_rules.py"


def test_folders_have_a_control_plane_of_their_own_or_share_one_or_none():
    """Two have their own, one needs none, and the others share one."""
    assert [control_plane_of(file) for file in (*ALL, RULES)] == ["", "install", "controller", "", "monitoring"]


def test_of_the_files_of_one_control_plane_a_long_one_is_taken_first():
    waiting = (API, INSTALL, LONG)
    assert next_file(waiting, "install", ()) == LONG
    assert next_file(waiting, "", ()) == API
    assert next_file((*waiting, RULES), None, ("", "install")) == RULES


@pytest.mark.parametrize(
    ("newest", "others", "taken"),
    [
        pytest.param(None, (), API, id="the first process: the head of the queue"),
        pytest.param(None, ("",), INSTALL, id="the second: a control plane that nobody has"),
        pytest.param(None, ("", "install"), CONTROLLER, id="the third"),
        pytest.param(None, ("", "install", "controller"), API, id="one process more than control planes"),
        pytest.param("controller", ("", "install", "controller"), CONTROLLER, id="its own, though another has it, too"),
        pytest.param("", ("install",), API, id="its own before one that nobody has"),
        pytest.param("page", ("", "install"), CONTROLLER, id="none of its own is left"),
    ],
)
def test_a_process_takes(newest, others, taken):
    assert next_file(ALL, newest, others) == taken
