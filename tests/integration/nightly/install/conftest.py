"""The same installation as the gate's tests have."""

from tests.integration.install.conftest import *  # noqa: F403 - pytest finds fixtures by their names here
