"""The note of very many running jobs, with the bound that is shipped."""

from tests.unit.controller.notes import the_note_fits


def test_the_note_of_very_many_jobs_fits() -> None:
    the_note_fits(50_000, 1_000_000)
