"""The bench of `top` has jobs as the operator tells them."""

from bench.goodput import a_job
from bench.top import FAILURES, told

from muster.api.trainingjob import TrainingJobStatus


def test_its_jobs_train_and_tell_of_all_their_failures() -> None:
    status = TrainingJobStatus.model_validate(told(a_job(0, 2)))
    assert (status.state, len(status.incidents)) == ("Running", FAILURES)
    assert status.goodput is not None
    assert status.step
