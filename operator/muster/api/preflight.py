"""What jobs and the fleet's owner say about the burn-in."""

from enum import StrEnum

from pydantic import ConfigDict, Field

from muster.api.base import ApiModel, checks, rule


class Profile(StrEnum):
    """How thoroughly nodes are tested; docs/burn-in.md says what each runs."""

    DISABLED = "Disabled"
    QUICK = "Quick"
    STANDARD = "Standard"
    DEEP = "Deep"

    @property
    def rank(self) -> int:
        """A pass of one profile counts for all of a lower rank."""
        return list(Profile).index(self)

    @classmethod
    def rank_of(cls, name: str) -> int:
        """The rank of what a checker calls a profile; -1 for one that is not known here."""
        return _RANKS.get(name, -1)

    @property
    def deeper(self) -> "Profile":
        """The next more thorough one; the last is its own."""
        return list(Profile)[min(self.rank + 1, Profile.DEEP.rank)]


_RANKS = {str(profile): profile.rank for profile in Profile}


class Preflight(ApiModel):
    """How the gang's nodes are tested before its first step, and whoever joins it later."""

    profile: Profile | None = Field(
        None,
        description="Disabled: not at all, unless the trainer finds its results wrong. Quick: at most 30 s. "
        "Standard: at most 3 minutes. Deep: at most 15 minutes. Absent: as the FleetPolicy says. Never less than the "
        "FleetPolicy's minimumProfile.",
    )
    max_age_seconds: int | None = Field(
        None,
        ge=0,
        le=31536000,
        description="A node that has passed within this time, and was not booted or changed since, is not tested "
        "again. Absent: as the FleetPolicy says.",
    )


class OnInconclusive(StrEnum):
    """What becomes of a gang about whose nodes the burn-in cannot say anything."""

    START = "Start"
    WAIT = "Wait"


class LimitedProbe(StrEnum):
    """Probes whose figure is the better the higher it is."""

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
    """What a figure has to reach, where the fleet's history and published floors shall not say it."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "has(self.minimum) != has(self.minimumPercent)",
                "a limit is a figure or a share of the fleet's own: write either minimum or minimumPercent",
            )
        )
    )

    probe: LimitedProbe
    model: str = Field(
        "",
        max_length=128,
        description=(
            "Start of the GPU's product name, e.g. NVIDIA H200. Of several that fit the longest counts. Empty: any."
        ),
    )
    minimum: str | None = Field(
        None,
        max_length=10,
        description="In TFLOP/s or GB/s, as the probe measures, e.g. 640.5, in place of history and floors. What "
        "asks for more than they do counts while a node of that model that is heard has reached it: else it would "
        "say nothing about nodes. 0: nothing is too slow. pair: for each transport, by what most pairs of the gang "
        "run over.",
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
        description=(
            "Of the middle of the fleet's history, once there is one (eight nodes). Published floors hold beside it."
        ),
    )


class PreflightPolicy(ApiModel):
    """The burn-in, for all jobs. It needs the checkers: docs/install.md."""

    model_config = ConfigDict(
        json_schema_extra=checks(
            rule(
                "self.minimumProfile in ['Disabled', self.profile] || self.profile == 'Deep' || "
                "(self.profile == 'Standard' && self.minimumProfile == 'Quick')",
                "jobs that say nothing would get less than the least: raise profile, or lower minimumProfile",
                at=".minimumProfile",
            )
        )
    )

    profile: Profile = Field(Profile.DISABLED, description="For jobs that do not say.")
    minimum_profile: Profile = Field(
        Profile.DISABLED, description="No job gets less, whatever it asks for. Disabled: jobs may go without."
    )
    max_age_seconds: int = Field(
        86400, ge=0, le=31536000, description="For so long a pass counts where a job does not say otherwise."
    )
    idle_max_age_seconds: int = Field(
        604800,
        ge=0,
        le=31536000,
        description="A node that nobody uses is tested again when its last pass is older; sooner after incidents. 0: "
        "never. Nodes without a pass (new, rebooted or changed ones) are tested as soon as nobody uses them, where "
        "profile is not Disabled.",
    )
    on_inconclusive: OnInconclusive = Field(
        OnInconclusive.START,
        description="When nothing can be said of some nodes (no checker there, a broken environment, too many that "
        "fail alike). Start: the job starts with a warning. Wait: the tests are repeated for half an hour and twice "
        "the profile's time; then the job takes other nodes, or gives all of them back and tries again later.",
    )
    transport: str = Field(
        "",
        max_length=32,
        description=(
            "What pairs of nodes have to run over (IB, RoCE, TCP, ...), where that is not NVLink. Empty: anything "
            "will do."
        ),
    )
    limits: list[PreflightLimit] = Field(
        [],
        max_length=64,
        description=(
            "What figures have to reach, for probes that are to be judged otherwise than by history and floors."
        ),
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["probe", "model"]},
    )
    max_replacements: int = Field(
        4, ge=1, le=32, description="So often in a row failed nodes are replaced; then the gang gives its nodes back."
    )


def wanted(job: Preflight, policy: PreflightPolicy, least: Profile = Profile.DISABLED) -> Profile:
    """The profile of a job's burn-in, whose nodes have to be tested with this one at least."""
    return max(job.profile or policy.profile, policy.minimum_profile, least, key=lambda profile: profile.rank)
