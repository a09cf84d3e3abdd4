"""What failures of five hundred jobs cost the health keeper on a large fleet."""

from typing import Any

from tests.unit.controller.failing_jobs import Jobs, an_owner_who_fails_everywhere_costs_little
from tests.unit.controller.health_stage import NOW
from tests.unit.counting import CountedWork

from muster.controller import nodereconciler as module


async def test_five_hundred_jobs_on_a_large_fleet_cost_little() -> None:
    """16,384 nodes; each job's record changes as it does when a failure comes, and only the nodes concerned are
    judged."""
    jobs = Jobs()
    jobs.policy()
    nodes = [f"n{i}" for i in range(16384)]
    jobs.add(*nodes)
    await jobs.look()
    judged = 0
    assess = module.assess

    def counted(*arguments: Any, **more: Any) -> Any:
        nonlocal judged
        judged += 1
        return assess(*arguments, **more)

    module.assess = counted  # type: ignore[assignment]
    steps = []
    try:
        for number in range(500):
            jobs.job(f"team-{number % 50}/job-{number}", *[(f"n{number * 32}", NOW)] * 3)
            if number % 10:
                await jobs.nodes.reconciler.reconcile()
            else:
                with CountedWork() as counted:
                    await jobs.nodes.reconciler.reconcile()
                steps.append(counted.steps)
        await jobs.nodes.reconciler.settled()
    finally:
        module.assess = assess
    assert judged <= 500 * 24
    assert max(steps) < 20_000, "for each failure"


async def test_an_owner_who_fails_everywhere_costs_little_too() -> None:
    await an_owner_who_fails_everywhere_costs_little(500)
