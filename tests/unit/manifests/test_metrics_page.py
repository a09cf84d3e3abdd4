"""docs/metrics.md names every metric that the code registers, with its type, labels and help; and no other."""

from pathlib import Path

from monitoring.page import PAGE, registered, rendered


def test_page_tells_what_the_code_registers(root: Path) -> None:
    page = (root / PAGE).read_text()
    assert page == rendered(page), "run `make generate`"
    assert {"muster_is_leader", "muster_job_state", "muster_node_offence_score", "muster_reports_total"} <= set(
        registered()
    )
