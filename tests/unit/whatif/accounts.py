"""What the account of a life adds up to."""

from dataclasses import asdict

import pytest
from tests.unit.whatif.builders import DICE, a_plan

from muster.whatif.failure_model import blows
from muster.whatif.life import LifeAccount, live
from muster.whatif.rates import LLAMA3
from muster.whatif.recovery_model import way_of


def total(account: LifeAccount) -> float:
    return account.useful + account.saving + sum(loss.seconds for loss in account.losses)


def assert_that_every_second_is_on_one_account(nodes: int, spares: int) -> None:
    plan = a_plan(nodes=nodes, spares=spares, mttf_days=50, durable_seconds=45, days=20)
    ways = [way_of(cause.symptom, plan) for cause in LLAMA3.causes]
    shares = [cause.share for cause in LLAMA3.causes]
    for number in range(5):
        account = live(plan, ways, blows(DICE(number), plan.nodes, plan.gang_mttf_seconds, plan.seconds, shares))
        assert total(account) == pytest.approx(plan.seconds)
        assert min(account.useful, account.saving, *(v for loss in account.losses for v in asdict(loss).values())) >= 0
