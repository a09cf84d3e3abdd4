"""What keeps nodes from being evaluated or taken out is reported when it begins, and when it changes."""

from tests.unit.controller.health_stage import stage_with_a_policy

from muster.controller.nodereports import NodeReports
from muster.health.budgets import OF_FLEET
from muster.health.figures import BudgetKind, ExhaustedBudget, PoolFigures, breaker_of


def test_another_kind_of_budget_that_holds_nodes_is_reported_but_not_each_rack() -> None:
    stage = stage_with_a_policy()
    reports = NodeReports(stage.cluster, stage.told)  # type: ignore[arg-type]
    events = []
    for kind, limit in (
        (BudgetKind.WINDOW, "the budget of 6 nodes in 600 s for eks is exhausted"),
        (BudgetKind.DOMAIN, "at most 2 of the pool's 10 nodes in block/rack-0 may be out"),
        (BudgetKind.DOMAIN, "at most 2 of the pool's 10 nodes in block/rack-1 may be out"),
    ):
        by_budget = ((ExhaustedBudget(kind, limit), 1),)
        pool = PoolFigures("gpu", 6, 6, 18, 6, 1, by_cause=(("eks", 1),), by_budget=by_budget)
        reports.held(breaker_of([pool], None, stage.now, lambda _pool: OF_FLEET))
        events.append(len(stage.told.policies))
    assert events == [1, 2, 2]
