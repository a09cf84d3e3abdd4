from tests.unit.agent.conftest import environment, node, run  # noqa: F401 - fixtures
