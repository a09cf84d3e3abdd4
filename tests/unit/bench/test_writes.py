"""Writes are counted from the API server's own metrics; what writes nothing is not among them."""

from bench.writes import write_counts, writes_between


def line(verb: str, resource: str, value: float, subresource: str = "", dry_run: str = "", code: str = "200") -> str:
    labels = f'code="{code}",component="apiserver",dry_run="{dry_run}",group="",resource="{resource}"'
    labels += f',scope="resource",subresource="{subresource}",verb="{verb}",version="v1"'
    return f"apiserver_request_total{{{labels}}} {value}\n"


def test_writes_are_summed_over_codes_by_verb_and_resource():
    text = (
        line("POST", "pods", 64, code="201")
        + line("POST", "pods", 1, code="409")
        + line("PATCH", "pods", 2e3, "status")
    )
    assert write_counts(text) == {"POST pods": 65, "PATCH pods/status": 2000}


def test_reads_heartbeats_questions_and_dry_runs_are_no_writes():
    text = (
        line("LIST", "pods", 5)
        + line("WATCH", "pods", 5)
        + line("PUT", "leases", 500)
        + line("POST", "serviceaccounts", 64, "token")
        + line("POST", "tokenreviews", 9)
        + line("POST", "pods", 1, dry_run="All")
    )
    assert write_counts(text) == {}


def test_other_metrics_are_left_alone():
    assert write_counts('apiserver_request_terminations_total{verb="POST"} 3\n# HELP apiserver_request_total x\n') == {}


def test_only_what_was_added_remains():
    assert writes_between({"POST pods": 3, "PUT gangs": 1}, {"POST pods": 5, "PUT gangs": 1, "PATCH nodes": 2}) == {
        "POST pods": 2,
        "PATCH nodes": 2,
    }
