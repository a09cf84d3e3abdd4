"""What the costliest template costs a plan of a thousand nodes."""

from tests.unit.lifecycle.selecting import costliest_costs_some_times_an_ordinary_one

from muster.placement.fleet_index import PART


def test_the_costliest_template_costs_a_plan_some_times_what_an_ordinary_one_does() -> None:
    costliest_costs_some_times_an_ordinary_one(nodes=PART)
