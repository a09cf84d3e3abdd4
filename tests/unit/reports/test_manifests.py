"""tests/data/reports/manifests: jobs as people write them, and what `convert` and the API make of them.

`input` is a file as kubectl reads it. Of a job of another system `right` is `becomes`, fields of the spec that
`convert` makes of it, `refused`, words of the refusal, or `passed`, where it is printed as it was written. Beside
`becomes`, each text of `told` is in one of the checks, and no text of `not_told` in any. Of a TrainingJob `right` is
`accepted`, or `refused` with words of the API server, which integration tests ask.
"""

from typing import Any

import pytest
import yaml
from tests.unit.convert.builders import job_of, result_of, trainer
from tests.unit.convert.schema import faults, schema
from tests.unit.reports.corpus import Case, cases

from muster.api.trainingjob import TrainingJob
from muster.convert.documents import convert_objects
from muster.protocol.contract import IDENTITY

CASES = cases("manifests")
REFUSED = [case for case in CASES if "kind: TrainingJob\n" not in case.given and "refused" in case.right]


def is_taken(made: dict[str, Any]) -> None:
    TrainingJob.model_validate(made)
    assert list(faults(made, schema("trainingjobs"))) == []


@pytest.mark.parametrize("case", [case for case in CASES if "becomes" in case.right], ids=str)
def test_a_converted_job_is_what_the_api_takes(case: Case) -> None:
    made = job_of(result_of(case))
    is_taken(made)
    expected = case.right["becomes"]
    assert {key: made["spec"].get(key) for key in expected} == expected
    assert not {each["name"] for each in trainer(made).get("env", ())} & IDENTITY
    assert "resources" not in trainer(made) or all(trainer(made)["resources"].values())
    checks = "\n".join(result_of(case).notes.check)
    assert [text for text in case.right.get("told", ()) if text not in checks] == []
    assert [text for text in case.right.get("not_told", ()) if text in checks] == []


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_no_gang_is_refused_with_a_remedy(case: Case) -> None:
    found = result_of(case)
    assert found.job is None
    assert case.right["refused"] in found.refused
    assert "\n" not in found.refused


@pytest.mark.parametrize("case", [case for case in CASES if case.right == "passed"], ids=str)
def test_what_is_no_gang_of_another_system_stays_as_it_is(case: Case) -> None:
    found = list(yaml.safe_load_all(case.given))
    assert convert_objects(found) == [None] * len(found)


@pytest.mark.parametrize("case", [case for case in CASES if case.right == "accepted"], ids=str)
def test_a_job_that_is_accepted_fits_its_definition(case: Case) -> None:
    is_taken(yaml.safe_load(case.given))
