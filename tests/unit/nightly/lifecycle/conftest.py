from tests.unit.lifecycle.conftest import submitted, training  # noqa: F401 - fixtures
