"""The same operator, nodes and launchers as the gate's tests have."""

from tests.integration.controller.conftest import *  # noqa: F403 - pytest finds fixtures by their names here
