"""One life of a gang: where each second goes."""

from dataclasses import asdict

import pytest
from tests.unit.whatif.accounts import assert_that_every_second_is_on_one_account, total
from tests.unit.whatif.builders import a_plan

from muster.whatif.failure_model import Blow
from muster.whatif.life import LifeAccount, Loss, live
from muster.whatif.plan import DAY_SECONDS
from muster.whatif.recovery_model import Leaves, Way

IN_PLACE = Way(5.0, Leaves.NEVER, True)
LOST = Way(20.0, Leaves.ALWAYS, False)
SICK = Way(1.0, Leaves.IF_FREE, True)
HANG = Way(600.0, Leaves.NEVER, True)
WAYS = (IN_PLACE, LOST, SICK, HANG)


def lost(account: LifeAccount, cause: int) -> dict[str, float]:
    return {name: value for name, value in asdict(account.losses[cause]).items() if value}


def test_without_a_failure_only_saves_cost() -> None:
    plan = a_plan(days=10_000 / DAY_SECONDS, checkpoint_seconds=90, save_seconds=10)
    account = live(plan, WAYS, [])
    assert (account.useful, account.saving) == pytest.approx((9000, 1000))
    assert account.losses == [Loss()] * 4


def test_a_crash_costs_the_start_and_training_since_the_newest_checkpoint() -> None:
    plan = a_plan(days=10_000 / DAY_SECONDS, checkpoint_seconds=90, save_seconds=10, start_seconds=60)
    account = live(plan, WAYS, [Blow(1050, 0, 0, 1.0)])
    assert lost(account, 0) == {"failures": 1, "redone": 50, "noticing": 5, "starting": 60}
    assert total(account) == pytest.approx(10_000)


def test_a_checkpoint_that_is_not_complete_yet_is_none() -> None:
    plan = a_plan(checkpoint_seconds=90, save_seconds=10, durable_seconds=30)
    assert live(plan, WAYS, [Blow(1020, 0, 0, 1.0)]).losses[0].redone == 90 + 20
    assert live(plan, WAYS, [Blow(1040, 0, 0, 1.0)]).losses[0].redone == 40


def test_a_failure_during_a_save_finds_the_checkpoint_before() -> None:
    plan = a_plan(checkpoint_seconds=90, save_seconds=10)
    account = live(plan, WAYS, [Blow(195, 0, 0, 1.0)])
    assert account.losses[0].redone == 90


def test_the_next_save_waits_for_the_one_before_to_be_complete() -> None:
    plan = a_plan(days=10_000 / DAY_SECONDS, checkpoint_seconds=30, save_seconds=10, durable_seconds=90)
    assert live(plan, WAYS, []).saving == pytest.approx(1000)


def test_a_lost_node_is_replaced_by_a_free_one() -> None:
    account = live(a_plan(spares=1), WAYS, [Blow(1000, 0, 1, 1.0)])
    expected = {"noticing": 20, "replacing": 100, "starting": 60}
    assert {name: lost(account, 1)[name] for name in expected} == expected
    assert "waiting" not in lost(account, 1)


def test_where_none_is_free_the_gang_waits_for_the_first_that_is_repaired() -> None:
    plan = a_plan(spares=0, repair_seconds=1000)
    assert lost(live(plan, WAYS, [Blow(1000, 0, 1, 2.0)]), 1)["waiting"] == pytest.approx(2000)
    # Two are lost, and the one that was lost last is back first: the gang needs both.
    both = live(plan, WAYS, [Blow(1000, 0, 1, 3.0), Blow(1010, 1, 1, 1.0)])
    assert both.losses[1].waiting == pytest.approx(3000 + 20 - (10 + 20))
    # With one more it needs to wait for the first only.
    one = live(plan.model_copy(update={"spares": 1}), WAYS, [Blow(1000, 0, 1, 3.0), Blow(1010, 1, 1, 1.0)])
    assert one.losses[1].waiting == pytest.approx(1000)


def test_a_failure_in_a_place_without_a_node_strikes_nothing() -> None:
    plan = a_plan(spares=0, repair_seconds=1000)
    first = Blow(1000, 7, 1, 1.0)  # a node is there again at 2020
    alone = live(plan, WAYS, [first])
    assert live(plan, WAYS, [first, Blow(1010, 7, 1, 9.0), Blow(2019, 7, 0, 9.0)]) == alone
    assert live(plan, WAYS, [first, Blow(2019, 8, 1, 1.0)]).losses[1].failures == 2  # who waits with it can fail
    assert live(plan, WAYS, [first, Blow(2021, 7, 1, 1.0)]).losses[1].failures == 2  # and so can who has come


def test_a_node_whose_ranks_restart_where_they_are_is_there() -> None:
    assert live(a_plan(), WAYS, [Blow(1000, 7, 0, 1.0), Blow(1030, 7, 1, 1.0)]).losses[1].failures == 1


def test_the_default_budget_of_nodes_ends_a_job_that_gets_no_further() -> None:
    plan = a_plan(days=3, spares=100, checkpoint_seconds=600, save_seconds=0)
    # From each start it comes to some 200 s of training: no checkpoint.
    stuck = [Blow(400.0 * (number + 1), number % 100, 1, 1.0) for number in range(51)]
    assert live(plan, WAYS, stuck).nodes_budget_exhausted
    assert not live(plan, WAYS, stuck[:50]).nodes_budget_exhausted
    assert not live(plan, WAYS, stuck).own_budget_exhausted
    # With saves in between all is given back, however many there are.
    saved = plan.model_copy(update={"checkpoint_seconds": 100.0})
    assert not live(saved, WAYS, stuck).nodes_budget_exhausted
    # And a day later.
    slow = [Blow(2 * blow.at * 400, blow.place, 1, 1.0) for blow in stuck[:10]]
    assert not live(plan, WAYS, slow).nodes_budget_exhausted


def test_the_default_budget_of_the_jobs_own_failures_ends_it_at_the_fourth() -> None:
    own = (Way(5.0, Leaves.NEVER, True, own=True),)
    crashes = [Blow(300.0 * (number + 1), number, 0, 1.0) for number in range(4)]
    assert live(a_plan(), own, crashes).own_budget_exhausted
    assert not live(a_plan(), own, crashes[:3]).own_budget_exhausted
    assert not live(a_plan(checkpoint_seconds=60), own, crashes).own_budget_exhausted


def test_a_spare_that_was_taken_is_there_again_once_the_lost_node_is_repaired() -> None:
    plan = a_plan(spares=1, repair_seconds=1000)
    soon = live(plan, WAYS, [Blow(1000, 0, 1, 5.0), Blow(3000, 1, 1, 5.0)])
    assert soon.losses[1].waiting == pytest.approx(6020 - 3020)
    late = live(plan, WAYS, [Blow(1000, 0, 1, 5.0), Blow(7000, 1, 1, 5.0)])
    assert late.losses[1].waiting == 0


def test_a_rank_on_a_degraded_node_moves_only_where_there_is_another() -> None:
    assert "replacing" in lost(live(a_plan(spares=1), WAYS, [Blow(1000, 0, 2, 1.0)]), 2)
    assert "replacing" not in lost(live(a_plan(spares=0), WAYS, [Blow(1000, 0, 2, 1.0)]), 2)


def test_while_no_rank_runs_none_can_crash_and_nodes_still_fail() -> None:
    plan = a_plan(spares=2)
    crash = live(plan, WAYS, [Blow(1000, 0, 1, 1.0), Blow(1050, 1, 0, 1.0)])
    assert crash.losses[0] == Loss()
    node = live(plan, WAYS, [Blow(1000, 0, 1, 1.0), Blow(1050, 1, 1, 1.0)])
    assert node.losses[1].failures == 2
    assert node.losses[1].noticing == pytest.approx(20 + 20)
    assert node.losses[1].replacing == pytest.approx(30 + 100)


def test_a_crash_while_ranks_start_begins_the_start_anew() -> None:
    account = live(a_plan(spares=1), WAYS, [Blow(1000, 0, 0, 1.0), Blow(1035, 1, 0, 1.0)])
    assert account.losses[0].starting == pytest.approx(30 + 60)
    assert account.losses[0].redone == 390


def test_a_hang_ends_with_the_next_restart_whoever_needs_it() -> None:
    account = live(a_plan(spares=1), WAYS, [Blow(1000, 0, 3, 1.0), Blow(1100, 1, 1, 1.0)])
    assert lost(account, 3) == {"failures": 1, "redone": 390, "noticing": 100}
    assert lost(account, 1) == {"failures": 1, "noticing": 20, "replacing": 100, "starting": 60}
    crash = live(a_plan(), WAYS, [Blow(1000, 0, 3, 1.0), Blow(1100, 1, 0, 1.0)])
    assert lost(crash, 0) == {"failures": 1, "noticing": 5, "starting": 60}


def test_ranks_that_hang_already_hang_no_longer_for_another_hang() -> None:
    account = live(a_plan(), WAYS, [Blow(1000, 0, 3, 1.0), Blow(1500, 1, 3, 1.0)])
    assert lost(account, 3) == {"failures": 1, "redone": 390, "noticing": 600, "starting": 60}


@pytest.mark.parametrize("nodes", [1, 128, 2048])
@pytest.mark.parametrize("spares", [0, 3])
def test_every_second_is_on_one_account(nodes: int, spares: int) -> None:
    assert_that_every_second_is_on_one_account(nodes, spares)
