"""The bench of accounting runs the shipped code: its jobs are decided, written and counted as in the operator."""

from bench.bed import ROOT
from bench.goodput import SCRAPE_SECONDS, a_job

from muster.api.goodput import Bucket


def test_its_jobs_have_as_full_an_account_as_there_can_be() -> None:
    account = a_job(0, 2).record.account
    assert account is not None
    assert set(account.milliseconds) == set(Bucket)
    assert sum(account.milliseconds.values()) == round(
        (account.counted_until - account.creation_time).total_seconds() * 1000
    )


def test_it_scrapes_as_often_as_the_shipped_monitor() -> None:
    text = (ROOT / "manifests/components/monitoring/monitors.yaml").read_text()
    assert f"interval: {SCRAPE_SECONDS:.0f}s" in text.split("---")[1]
