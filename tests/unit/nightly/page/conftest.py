"""The fixtures of the unit tests."""

from tests.unit.page.conftest import *  # noqa: F403 - pytest finds fixtures by their names here
