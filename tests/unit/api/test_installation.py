"""Each profile has the parts of those before it, and does no more than they allow, whatever the FleetPolicy says."""

import pytest

from muster.api.fleetpolicy import Enforcement, FleetPolicySpec, HealthPolicy
from muster.api.installation import InstallationProfile, name_component
from muster.api.preflight import PreflightPolicy

OBSERVE, HEALTH, BURN_IN, JOBS = InstallationProfile
ALL = FleetPolicySpec.model_validate(
    {
        "health": {"enforcement": "Nodes", "nodeCondition": True, "repair": {"actions": ["Reboot"]}},
        "preflight": {"profile": "Standard", "minimumProfile": "Quick", "idleMaxAgeSeconds": 5},
    }
)
OF_HEALTH = "spec.health.enforcement, spec.health.nodeCondition, spec.health.repair.actions"
OF_TESTS = "spec.preflight.profile, spec.preflight.minimumProfile"


def test_each_profile_adds_a_part() -> None:
    parts = {profile: (profile.acts_on_nodes, profile.has_tests, profile.has_jobs) for profile in InstallationProfile}
    assert parts == {
        OBSERVE: (False, False, False),
        HEALTH: (True, False, False),
        BURN_IN: (True, True, False),
        JOBS: (True, True, True),
    }
    assert [profile for profile in InstallationProfile if profile.has_coordinator] == [BURN_IN, JOBS]


@pytest.mark.parametrize("profile", [BURN_IN, JOBS])
def test_a_profile_with_these_parts_carries_all_of_the_policy_out(profile: InstallationProfile) -> None:
    assert profile.bounded(ALL) == ALL
    assert profile.unmet(ALL) == ""


def test_health_alone_asks_for_no_test() -> None:
    bounded = HEALTH.bounded(ALL)
    assert bounded.health == ALL.health
    assert bounded.preflight == PreflightPolicy(idle_max_age_seconds=5)
    assert f"leaves out what the FleetPolicy asks for by {OF_TESTS}. Install profile burn-in," in HEALTH.unmet(ALL)


def test_who_observes_changes_no_node() -> None:
    bounded = OBSERVE.bounded(ALL)
    assert bounded.health == HealthPolicy(enforcement=Enforcement.OBSERVE)
    assert bounded.preflight == HEALTH.bounded(ALL).preflight
    assert f"{OF_HEALTH}, {OF_TESTS}. Install profile burn-in," in OBSERVE.unmet(ALL)
    only_health = ALL.model_copy(update={"preflight": FleetPolicySpec().preflight})
    assert f"{OF_HEALTH}. Install profile health," in OBSERVE.unmet(only_health)


def test_a_policy_that_asks_for_nothing_is_met_by_every_profile() -> None:
    assert [profile.unmet(FleetPolicySpec()) for profile in InstallationProfile] == [""] * 4


def test_what_pools_ask_for_is_bounded_and_named_too() -> None:
    pools = [
        {"name": "a", "health": {"enforcement": "Nodes"}},
        {"name": "b", "health": {"enforcement": "Jobs"}},
        {"name": "c", "health": {}},
        {"name": "d"},
    ]
    policy = FleetPolicySpec.model_validate({"pools": pools})
    enforcements = [pool.health and pool.health.enforcement for pool in OBSERVE.bounded(policy).pools]
    assert enforcements == [Enforcement.OBSERVE, Enforcement.OBSERVE, None, None]
    assert HEALTH.bounded(policy).pools == policy.pools
    assert "asks for by spec.pools[a].health.enforcement. Install profile health," in OBSERVE.unmet(policy)
    assert HEALTH.unmet(policy) == ""


def test_the_schema_names_what_has_the_right_to_write_the_condition() -> None:
    description = HealthPolicy.model_fields["node_condition"].description
    assert name_component("node-condition") in str(description)
