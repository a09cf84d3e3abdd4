"""tests/data/reports/answers: what the API server's refusals, and those of what stands in front of it, are told as.

`input` has the `codes` with which the answer comes, and `message` and `reason` of its Status, or its `body`. `right`
names the `error` of muster.kube.errors, and the `reason` that a job waits with where its template is refused so.
"""

import json

import pytest
from tests.unit.reports.corpus import Case, cases

from muster.controller.perform import refusal
from muster.kube import errors


@pytest.mark.parametrize("case", cases("answers"), ids=str)
def test_each_answer_is_told_as_what_it_is(case: Case) -> None:
    for code in case.given["codes"]:
        status = {
            "kind": "Status",
            "code": code,
            "reason": case.given.get("reason", ""),
            "message": case.given.get("message"),
        }
        body = case.given.get("body", json.dumps(status))
        error = errors.from_status(code, body.encode())
        assert (type(error).__name__, error.status) == (case.right["error"], code)
        assert (case.given.get("message") or body) in str(error)
        if "reason" in case.right:
            reason, message = refusal(error, "gold")
            assert reason == case.right["reason"]
            assert case.given["message"] in message
