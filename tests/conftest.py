"""Asserts in modules beside the tests tell their values, too, when they fail."""

import pytest

pytest.register_assert_rewrite("tests.unit", "tests.integration", "tests.e2e", "stage")
