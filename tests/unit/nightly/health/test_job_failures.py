"""What it costs to keep what five hundred jobs say."""

from tests.unit.health.words import assert_that_work_goes_by_the_jobs_of_an_owner


def test_five_hundred_jobs_take_work_by_the_jobs_of_an_owner_and_not_by_nodes() -> None:
    assert_that_work_goes_by_the_jobs_of_an_owner(owners=20)
