from tests.unit.cli.conftest import api, command, kubectl, printed  # noqa: F401 - fixtures
