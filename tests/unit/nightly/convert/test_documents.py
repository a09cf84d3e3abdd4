"""Very many changes to the manifests of other systems."""

from tests.unit.convert.changes import assert_that_what_is_changed_comes_out_valid_or_refused


def test_whatever_is_changed_in_them_comes_out_valid_or_refused() -> None:
    assert_that_what_is_changed_comes_out_valid_or_refused(times=60)
