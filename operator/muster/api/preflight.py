"""The burn-in of nodes: what a TrainingJob and the FleetPolicy set about it.

Tests: tests/unit/burnin/test_progress.py.
"""

from enum import StrEnum

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, checks, rule


class Profile(StrEnum):
    """Profile is how thoroughly the burn-in tests nodes. docs/burn-in.md lists what each profile runs."""

    DISABLED = "Disabled"
    QUICK = "Quick"
    STANDARD = "Standard"
    DEEP = "Deep"

    @property
    def rank(self) -> int:
        """The place among the profiles, from 0. A pass of one profile counts for all profiles of a lower rank."""
        return list(Profile).index(self)

    @classmethod
    def rank_of(cls, name: str) -> int:
        """The rank of a profile by the name that a checker gives it; -1 for a name that is not known here."""
        return _RANKS.get(name, -1)

    @property
    def deeper(self) -> "Profile":
        """The next more thorough profile; for Deep, Deep itself."""
        return list(Profile)[min(self.rank + 1, Profile.DEEP.rank)]


_RANKS = {str(profile): profile.rank for profile in Profile}


class Preflight(ApiModel):
    """Preflight sets how the burn-in tests the job's nodes before the ranks start, and nodes that join later."""

    profile: Profile | None = Field(
        None,
        description="profile is how thoroughly the job's nodes are tested, and never less than the FleetPolicy's "
        "minimumProfile. A node's own tests take at most 30 s in Quick, 3 minutes in Standard and 15 minutes in Deep. "
        "Disabled: no test, unless the trainer reports wrong results; absent: the FleetPolicy's profile applies.",
    )
    max_age_seconds: int | None = Field(
        None,
        ge=0,
        le=31536000,
        description="maxAgeSeconds is how old a node's last passed test may be so that a start needs no new test. A "
        "reboot, or changed hardware or software, ends a pass at once. With 0 no pass is fresh enough; if absent, the "
        "FleetPolicy's maxAgeSeconds applies.",
    )


class OnInconclusive(StrEnum):
    """OnInconclusive says what a gang does when the burn-in can neither pass nor fail some of its nodes."""

    START = "Start"
    WAIT = "Wait"


class LimitedProbe(StrEnum):
    """LimitedProbe is a probe of the burn-in whose figure is better when it is higher.

    docs/burn-in.md says what each one measures.
    """

    GEMM = "gemm-bf16"
    LARGE_GEMM = "gemm-bf16-16384"
    MEMORY_BANDWIDTH = "memory-bandwidth"
    MEMORY_PATTERN = "memory-pattern"
    HOST_TO_DEVICE = "host-to-device"
    DEVICE_TO_HOST = "device-to-host"
    ALL_REDUCE = "all-reduce-node"
    STORAGE = "storage"
    STORAGE_READ = "storage-read"
    PAIR = "pair"


class PreflightLimit(ApiModel):
    """PreflightLimit sets what one probe has to measure for a node to pass, where earlier and published figures should
    not decide that.
    """

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "has(self.minimum) != has(self.minimumPercent)",
                "a limit has exactly one of two forms: write either minimum or minimumPercent",
            )
        )
    )

    probe: LimitedProbe = Field(
        description="probe is the measurement that the limit is for, by its name in docs/burn-in.md."
    )
    model: str = Field(
        "",
        max_length=128,
        description="model is the beginning of the GPU's product name, e.g. NVIDIA H200. Of several limits that "
        "match, the one with the longest model counts. Empty: the limit is for any model.",
    )
    minimum: str | None = Field(
        None,
        max_length=10,
        description="minimum is the least figure that passes, in the probe's unit (TFLOP/s or GB/s), e.g. 640.5; 0 "
        "accepts every figure. It replaces the limits that Muster takes from earlier figures of the fleet and from "
        "published ones. A higher limit than these counts only once a node of that model has reached it.",
        json_schema_extra=checks(
            rule(
                "self.matches('^[0-9]{1,6}([.][0-9]{1,3})?$')",
                "write a number without its unit and without an exponent, e.g. 640.5",
            )
        ),
    )
    minimum_percent: int | None = Field(
        None,
        ge=1,
        le=95,
        description="minimumPercent is the least figure, in percent of the median of the fleet's earlier figures. It "
        "counts once eight nodes have figures. Limits that Muster takes from published figures apply, too.",
    )


class PreflightPolicy(ApiModel):
    """PreflightPolicy sets the burn-in of nodes for all jobs. It needs the DaemonSet of checkers (docs/install.md)."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.minimumProfile in ['Disabled', self.profile] || self.profile == 'Deep' || "
                "(self.profile == 'Standard' && self.minimumProfile == 'Quick')",
                "jobs without a profile of their own would get less than minimumProfile: raise profile, or lower "
                "minimumProfile",
                at=".minimumProfile",
            )
        )
    )

    profile: Profile = Field(
        Profile.DISABLED,
        description="profile is how thoroughly the nodes of a job are tested if its spec.preflight.profile is absent, "
        "and how idle nodes are tested. Disabled: such jobs start without a burn-in, and idle nodes are not tested.",
    )
    minimum_profile: Profile = Field(
        Profile.DISABLED,
        description="minimumProfile is the least thorough profile that any job gets, whatever its own spec asks for. "
        "Disabled: jobs may start without a burn-in.",
    )
    max_age_seconds: int = Field(
        86400,
        ge=0,
        le=31536000,
        description="maxAgeSeconds is how old a node's last passed test may be so that a start needs no new test. It "
        "applies to jobs whose spec.preflight.maxAgeSeconds is absent. 0: no pass is fresh enough.",
    )
    idle_max_age_seconds: int = Field(
        604800,
        ge=0,
        le=31536000,
        description="idleMaxAgeSeconds is how old the last passed test of an idle node may be before the node is "
        "tested again; incidents make that sooner. With 0 a passed test never becomes too old. Unless profile is "
        "Disabled, idle nodes without a pass are tested at once.",
    )
    on_inconclusive: OnInconclusive = Field(
        OnInconclusive.START,
        description="onInconclusive is what happens when some nodes can be neither passed nor failed, e.g. because no "
        "checker runs there. Start: the job starts with a warning. Wait: tests repeat for half an hour plus twice the "
        "profile's time, then the job takes other nodes or tries again later.",
    )
    transport: str = Field(
        "",
        max_length=32,
        description="transport is what pairs of nodes have to communicate over in the burn-in, e.g. IB, RoCE or TCP; "
        "NVLink is always good enough. A pair over another transport proves nothing. Empty: any transport is good "
        "enough.",
    )
    limits: list[PreflightLimit] = Field(
        [],
        max_length=64,
        description="limits sets what single probes have to measure, where earlier and published figures should not "
        "decide that. Empty: these decide alone.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["probe", "model"]},
    )
    max_replacements: int = Field(
        4,
        ge=1,
        le=32,
        description="maxReplacements is how many times in a row a gang replaces nodes that failed the burn-in. After "
        "that, the gang releases all its nodes and tries again later.",
    )


def wanted(job: Preflight, policy: PreflightPolicy, least: Profile = Profile.DISABLED) -> Profile:
    """The profile of a job's burn-in: what the job or the policy asks for, and at least `least`."""
    return max(job.profile or policy.profile, policy.minimum_profile, least, key=lambda profile: profile.rank)
