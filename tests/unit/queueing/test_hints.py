"""What remedies say is true: followed on random fleets they let the job start."""

from random import Random

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.queueing.hints import SMALLER, Scene, a_scene, check_smaller, follow, hints_of

from muster.world.queuedecision import NotPlaced, Placed

scenes = st.builds(lambda seed, jobs: a_scene(Random(seed), jobs), st.integers(0, 1 << 32), st.sampled_from([1, 4, 20]))


@settings(max_examples=100)
@given(scenes)
def test_a_job_starts_once_all_its_remedies_are_followed(scene: Scene) -> None:
    answer = scene.answer()
    if not isinstance(answer, NotPlaced) or answer.shortfall is None or not answer.shortfall.ever:
        return
    hints = hints_of(scene, answer)
    event(type(answer).__name__)
    follow(scene, [hint for hint in hints if not check_smaller(scene, hint)])
    scene.before.clear()  # it may take what has become free: the place in the queue says so
    assert scene.starts(), hints


@settings(max_examples=100)
@given(scenes)
def test_what_makes_a_job_that_never_fits_fit_does(scene: Scene) -> None:
    answer = scene.answer()
    if not isinstance(answer, NotPlaced) or answer.shortfall is None or answer.shortfall.ever:
        return
    never, *hints = hints_of(scene, answer)
    assert never.startswith("it can never start on this fleet"), never
    repairs = [hint for hint in hints if not SMALLER.fullmatch(hint)]
    follow(scene, repairs)
    event("repairs" if repairs else "none")
    after = scene.answer()
    fits = isinstance(after, Placed) or (after.shortfall is not None and after.shortfall.ever)
    assert fits or not repairs or any(", as far as that " in hint for hint in repairs), hints
