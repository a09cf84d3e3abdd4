"""What a scrape costs with as many jobs as the operator shows rows of."""

from tests.unit.controller.scrapes import a_scrape_is_bounded_in_rows_and_work


def test_a_scrape_of_as_many_jobs_as_have_rows_is_bounded_in_rows_and_work() -> None:
    a_scrape_is_bounded_in_rows_and_work()
