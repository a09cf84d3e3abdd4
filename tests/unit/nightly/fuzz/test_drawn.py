"""What is drawn for a round: its samples come from whole simulated lives, which takes half a minute."""

from fuzz import samples
from fuzz.draw import drawn
from fuzz.inputs import KINDS


def test_a_seed_is_always_the_same_round_and_another_one_another() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
    kinds = {one.kind for seed in range(3, 43) for one in drawn(seed).inputs if one.mutated}
    assert kinds == set(KINDS)


def test_settled_jobs_have_names_of_their_own_everywhere() -> None:
    family = next(family for family in samples.families() if family.gang and family.reports)
    one, other = family.settled_as(1), family.settled_as(2)
    assert one.gang is not None
    uid = one.job["metadata"]["uid"]
    assert one.gang["spec"]["jobUid"] == uid != other.job["metadata"]["uid"]
    names = {pod["metadata"]["name"] for pod in one.pods}
    assert all(name.startswith(f"{one.gang['metadata']['name']}-") for name in names)
    assert not names & {pod["metadata"]["name"] for pod in other.pods}
    assert one.reports.keys() <= {pod["metadata"]["uid"] for pod in one.pods}
    assert {pod["metadata"]["namespace"] for pod in one.pods} == {samples.namespace(1)}
