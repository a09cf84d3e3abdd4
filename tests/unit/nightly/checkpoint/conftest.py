from tests.unit.checkpoint.conftest import dcp, settled  # noqa: F401 - fixtures
