"""Gang: the commit record of a job's attempt. Written by the operator alone, one guarded update at a time.

An attempt is one start of the gang. Its number, its members and its cause change together, in ONE update; only after
that update has succeeded are directives served or pods touched. A second guarded update adds `start` once every
member is idle. It fixes what the ranks are started with (addresses, resume checkpoint), so that a new leader serves
the same answer. See docs/decisions/0002.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field, model_validator
from pydantic.alias_generators import to_camel

from muster.api.base import (
    NAME_LENGTH,
    UID_LENGTH,
    ApiModel,
    CompactModel,
    LevelCount,
    NodeName,
    ObjectMeta,
    Time,
    checks,
    rule,
    shortened_to,
)
from muster.api.goodput import LONGEST_MILLISECONDS, MAX_NODE_GPUS, Account
from muster.api.preflight import Profile
from muster.protocol.messages import LONGEST_FENCE_SECONDS, MAX_FENCE_FILE_CHARS


class Level(StrEnum):
    """How an attempt came to be: the levels of recovery, shortest first, and the starts that are none."""

    START = "Start"
    IN_PLACE = "R0"
    POD = "R0b"
    REPLACE = "R2"
    REBUILD = "R4"


class FaultClass(StrEnum):
    """What kind of failure an incident was; decides which budget pays."""

    APPLICATION = "Application"
    HARDWARE = "Hardware"
    INFRASTRUCTURE = "Infrastructure"
    PLANNED = "Planned"
    UNKNOWN = "Unknown"


class Role(StrEnum):
    """What a member is there for."""

    WORKER = "Worker"
    SPARE = "Spare"


class Proof(StrEnum):
    """What it takes to be sure that the ranks of a pod that cannot be asked have ended."""

    FENCE = "Fence"
    FENCE_FILE = "FenceFile"
    DEATH = "Death"


# The launcher's own, before any other is served to it.
FENCE_SECONDS = 15
MAX_FENCE_SECONDS = int(LONGEST_FENCE_SECONDS)


class Member(CompactModel):
    """One member of the gang. Its index names its pods and never changes; its rank is its place in the attempt."""

    unsaid = (
        "index",
        "role",
        "rank",
        "gpus",
        "fence_seconds",
        "boot_id",
        "pod_uid",
        "reads_fence_file",
        "is_replacement",
    )

    index: int = Field(-1, ge=-1, le=4095, description="Absent in records of old: its place in the list.")
    role: Role = Role.WORKER
    rank: int = Field(-1, ge=-1, le=4095, description="Node rank; absent in records of old: its index.")
    fence_seconds: int = Field(
        FENCE_SECONDS, ge=1, le=MAX_FENCE_SECONDS, description="The longest fence that its launcher may be counting by."
    )
    node: NodeName = Field("", description="Node it is placed on; empty while no node is free for it.")
    gpus: int | None = Field(
        None,
        ge=0,
        le=MAX_NODE_GPUS,
        description="Accelerators of its node when it was placed there, all of which it holds; absent: not known.",
    )
    boot_id: str = Field(
        "", max_length=8, description="First characters of the node's boot id when its ranks were started."
    )
    incarnation: int = Field(1, ge=1, description="Grows each time the worker gets a new pod.")
    pod_uid: str = Field("", max_length=UID_LENGTH, description="Uid of its pod, once Muster has seen it created.")
    reads_fence_file: bool = Field(
        False,
        description="Its launcher ends its ranks when the fence file in the checkpoint directory tells it to. This "
        "counts only for the fence file that spec.fenceFileId names.",
    )
    is_replacement: bool = Field(
        False, description="It was placed after the ranks had stopped: it had no part in what they did."
    )


class Resume(ApiModel):
    """The checkpoint that the ranks resume from."""

    step: int = Field(ge=0)
    path: str = Field(max_length=1024)


class Branch(ApiModel):
    """The step to which the training went back, because a person asked for it or because its results were wrong.

    What had been saved beyond that step belongs to another history and is not resumed from."""

    resume_from: str = Field(max_length=1024, description="The newest spec.checkpoint.resumeFrom; empty: nobody asked.")
    step: int = Field(
        -1, ge=-1, description="Of the checkpoint asked for, or the last whose checkpoint is not suspect; -1: none."
    )
    frozen: bool = Field(
        False,
        description="No checkpoint beyond the step counts, whenever it was written: excludedCheckpoints "
        "names them at the next start.",
    )
    excluded_checkpoints: str = Field(
        "",
        max_length=16384,
        description="Checkpoints beyond the step that do not count: step and time of writing (nanoseconds) of each, as "
        "200:1700000000000000000,100:...",
    )


class AttemptStart(ApiModel):
    """What the ranks of this attempt are started with."""

    time: Time
    master_address: str = Field(max_length=NAME_LENGTH)
    master_port: int = Field(ge=1, le=65535)
    resume: Resume | None = Field(None, description="Absent: from scratch.")
    resume_preset: str = Field(
        "",
        max_length=64,
        description="The preset that hands it to the command (muster.protocol.resuming); empty: none.",
    )


# Those who are lost together have these in common.
_LIKE_THE_ONE_BEFORE = (
    "fenced_time",
    "fence_seconds",
    "remaining_seconds",
    "attempt",
    "proof",
    "fence_file_id",
    "gossips",
)


class UnfencedWorker(CompactModel):
    """A pod of an earlier attempt whose ranks are not yet proved dead.

    No rank may start before it is proved or fenced. In the object it says of what unfenced workers have in common
    (time, fence, attempt, proof) only what is different from the unfenced worker before it in the list.
    """

    unsaid = ("pod_uid", "node", "boot_id", *_LIKE_THE_ONE_BEFORE)

    pod: str = Field(max_length=NAME_LENGTH)
    pod_uid: str = Field("", max_length=UID_LENGTH)
    node: NodeName = ""
    boot_id: str = Field(
        "", max_length=8, description="As of the member: another boot than this has none of its ranks."
    )
    fenced_time: Time = Field(
        description="From then on its launcher has ended its ranks by itself, even if cut off; for people, since "
        "clocks may step. With another proof: since when it has been silent."
    )
    fence_seconds: int = Field(
        FENCE_SECONDS, ge=1, le=MAX_FENCE_SECONDS, description="The fence that its launcher counts by."
    )
    remaining_seconds: int = Field(
        -1,
        ge=-1,
        le=2 * MAX_FENCE_SECONDS,
        description="Proof Fence: how long its fence had still to count when this was written; each leader counts it "
        "by a clock that does not step, from when it first reads this. -1: all of it.",
    )
    attempt: int = Field(0, ge=0, description="The attempt whose ranks it may be running.")
    proof: Proof = Field(
        Proof.FENCE,
        description="Fence: it ends its ranks by itself, because it misses a part of its gang. FenceFile: it may miss "
        "nobody, so the fence file in the checkpoint directory has to tell it. Death: nothing can tell it.",
    )
    fence_file_id: str = Field(
        "",
        max_length=MAX_FENCE_FILE_CHARS,
        description="Identity of the fence file that it reads; a fence file in another directory tells it nothing.",
    )
    gossips: bool = Field(False, description="All launchers of its gang did: when one is missed, all of them know.")


class Evacuation(ApiModel):
    """A planned evacuation under way: wait for a new complete checkpoint, then stop."""

    reason: str = Field(max_length=64)
    nodes: list[NodeName] = Field([], max_length=4096, description="Nodes to leave; empty: all (suspend).")
    since: Time
    deadline: Time
    after_step: int | None = Field(None, description="A complete checkpoint beyond this step ends the wait.")


class GangIncident(ApiModel):
    """One failure, as budgets count it."""

    attempt: int = Field(ge=0, description="The attempt that ended by it.")
    time: Time
    level: Level
    fault_class: FaultClass
    reason: str = Field(max_length=64)
    node: NodeName = ""
    index: int | None = None
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    step: int | None = Field(None, description="Newest step known to be finished when it happened.")
    resumed_step: int | None = Field(None, description="Step that the following attempt resumed from.")
    checkpoint_step: int | None = Field(None, description="Newest complete checkpoint known when it happened.")
    message: Annotated[str, shortened_to(2048)] = Field("", max_length=2048)
    settled: bool = Field(False, description="Class and blame are final.")
    fault_time: Time | None = Field(
        None, description="When it happened, as far as is known; `time` is when it was seen."
    )
    resumed_time: Time | None = Field(None, description="When the first step after it was finished.")
    lost_milliseconds: int | None = Field(
        None, ge=0, le=LONGEST_MILLISECONDS, description="Work that it took back, or broke off."
    )
    lost_steps: int | None = Field(
        None,
        ge=0,
        description=(
            "Steps made again, noted where another history begins and the numbers above are cut for the budgets."
        ),
    )
    trained: bool = Field(False, description="A step of the attempt had been seen: it is no failure of a start.")
    other_workers: int | None = Field(
        None,
        ge=0,
        le=4096,
        description="How many more workers failed by themselves with it; of a lone worker, how many more ranks. "
        "Absent: not known.",
    )


class BurnInFailure(ApiModel):
    """A node that failed the burn-in of this gang, and what proves it."""

    node: NodeName
    boot: str = Field("", max_length=64, description="Its boot id then.")
    time: Time
    probe: str = Field(max_length=128)
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512)
    partners: list[NodeName] = Field([], max_length=16, description="Proven nodes with which it failed.")


class BurnInAllReduce(ApiModel):
    """What the all-reduce of the whole gang has come to."""

    time: Time = Field(description="When the ranks were started after it.")
    message: Annotated[str, shortened_to(512)] = Field(max_length=512)


class BurnIn(ApiModel):
    """What came of testing the gang's nodes, as far as the next decision needs it."""

    profile: str = Field("", max_length=16)
    time: Time = Field(description="When this was last written.")
    tries: int = Field(0, ge=0, description="How often in a row failed nodes were replaced since the last start.")
    since_attempt: int = Field(
        0, ge=0, description="The attempt in which the first of these failed: who has passed since then need not again."
    )
    failures: list[BurnInFailure] = Field([], max_length=64, description="The newest ones.")
    untested: list[NodeName] = Field(
        [], max_length=4096, description="Nodes of which nothing could be said, and that started all the same."
    )
    message: Annotated[str, shortened_to(512)] = Field("", max_length=512, description="Why nothing could be said.")
    all_reduce: BurnInAllReduce | None = Field(
        None, description="The newest all-reduce of the whole gang. It measures, and blames no node."
    )


class Examination(StrEnum):
    """What the tests of the nodes have shown of a corruption."""

    CULPRIT_FOUND = "CulpritFound"
    NOTHING_FOUND = "NothingFound"
    INCONCLUSIVE = "Inconclusive"
    NOT_TESTED = "NotTested"


class CorruptionStatus(ApiModel):
    """What the trainer has found wrong with its own results, the last time, and what came of it: as people are told."""

    attempt: int = Field(ge=0, description="The attempt whose ranks have found it.")
    time: Time
    reason: str = Field(
        max_length=64, description="ReplayMismatch, NonFiniteLoss, or ExitCode where no line told more."
    )
    node: NodeName = Field("", description="Of the rank that said so, which need not be the culprit's.")
    found_at: int = Field(
        ge=0,
        description="The step at which it was found; where nobody said, the newest step known to be finished then.",
    )
    suspect_steps: list[int] = Field(
        [],
        max_length=16,
        description="Steps of checkpoints that do not count until they are written anew; the newest 16.",
    )
    suspect_count: int = Field(0, ge=0, description="How many they are.")
    resumed_step: int | None = Field(None, description="Step that the training went on from; absent: it has not yet.")
    examination: Examination | None = Field(
        None, description="What the tests of its nodes have shown; absent: they are not over."
    )
    culprits: list[NodeName] = Field([], max_length=16, description="Nodes that gave wrong results in the tests.")
    message: Annotated[str, shortened_to(1024)] = Field(
        "", max_length=1024, description="All of it in words; in the Gang the trainer's word alone."
    )


class Corruption(CorruptionStatus):
    """The same with what decisions need."""

    last_good: int | None = Field(None, ge=0, description="The last step of which the trainer is sure, if it says so.")
    suspect_beyond_step: int = Field(ge=-1, description="Checkpoints of later steps that were there then are suspect.")
    newest_checkpoint: Resume | None = Field(None, description="Newest complete checkpoint known then.")
    occurrences: int = Field(
        1, ge=1, description="How often in a row, with no culprit found and no step won in between."
    )
    open: bool = Field(True, description="No start of the ranks has followed yet: its nodes are to be tested before.")


class GangSpec(ApiModel):
    """The record."""

    job_uid: str = Field(
        max_length=UID_LENGTH,
        json_schema_extra=checks(
            rule("self == oldSelf", "a Gang belongs to one job for ever: delete and re-create it")
        ),
    )
    attempt: int = Field(
        ge=1,
        json_schema_extra=checks(
            rule("self >= oldSelf", "a committed attempt is never taken back: commit a later one")
        ),
    )
    time: Time = Field(description="When this attempt was committed.")
    level: Level
    reason: str = Field(max_length=64)
    members: list[Member] = Field(
        [], max_length=4096, description="By index; empty while suspended or waiting for nodes."
    )
    topology: list[LevelCount] = Field(
        [], max_length=16, description="How many domains of each level the members were in when they were placed."
    )
    start: AttemptStart | None = None
    unfenced_workers: list[UnfencedWorker] = Field([], max_length=4096)
    listing_round: int = Field(
        0,
        ge=0,
        description="Raised when the last unfenced worker of this attempt is proved dead. It may have saved until "
        "then, so the start waits for lists of checkpoints that were begun afterwards. Each attempt counts from 0.",
    )
    evacuation: Evacuation | None = None
    incidents: list[GangIncident] = Field([], max_length=256)
    excluded_nodes: dict[str, Time] = Field({}, max_length=4096, description="Nodes that this job avoids, until when.")
    hold_until: Time | None = Field(None, description="Do not start this attempt before (back-off).")
    releases: int = Field(
        0, ge=0, description="How often in a row the gang gave its nodes back because it could not be assembled."
    )
    checkpoint: Resume | None = Field(None, description="Newest complete checkpoint seen so far.")
    move_incomplete_beyond: Resume | None = Field(
        None,
        description="Incomplete checkpoints beside this one with a higher step are moved away before this attempt "
        "starts. Absent: not asked for, not yet, or the attempt starts from scratch.",
    )
    local_since_attempt: int = Field(
        0,
        ge=0,
        description="What attempts before this one saved on the nodes' own disks does not count: the training has "
        "gone on without it.",
    )
    last_published_checkpoint: Resume | None = Field(
        None,
        description="The checkpoint that the job's status showed at the last start. It was judged then: gone, of "
        "another history, or resumed from. Only a checkpoint that the status shows later counts again.",
    )
    fence_file_id: str = Field(
        "",
        max_length=MAX_FENCE_FILE_CHARS,
        description="Identity of the fence file that the members read; empty while none is known.",
    )
    gossips: bool = Field(
        False, description="All launchers whose ranks may be running tell each other when one is missed."
    )
    branch: Branch | None = Field(
        None, description="Absent: nobody has asked to resume from elsewhere, and no checkpoint was ever suspect."
    )
    burn_in: BurnIn | None = Field(
        None, description="Absent: nothing has failed, nothing was left out, and the gang was not measured."
    )
    corruption: Corruption | None = Field(None, description="Absent: the trainer has found nothing wrong yet.")
    verifier_round: int = Field(
        0, ge=0, description="How often others were chosen to judge checkpoints: shifts who does."
    )
    verifier_round_time: Time | None = Field(None, description="When that was last.")
    account: Account | None = Field(None, description="Where the job's time went; absent: nothing is counted yet.")

    def place_of(self, index: int) -> int | None:
        """The place in the list of the member with this index, which most often is the same; None if there is none."""
        if 0 <= index < len(self.members) and self.members[index].index == index:
            return index
        return next((place for place, member in enumerate(self.members) if member.index == index), None)

    @property
    def open_corruption(self) -> Corruption | None:
        """What was found wrong, while no start of the ranks has followed."""
        return self.corruption if self.corruption is not None and self.corruption.open else None

    @property
    def least_profile(self) -> Profile:
        """What its nodes are at least tested with before its next go, whatever job and policy say."""
        found = self.open_corruption
        if found is None:
            return Profile.DISABLED
        # What shows itself once in many repeats wants more of them where the first look has found nobody.
        return Profile.STANDARD if found.occurrences == 1 else Profile.DEEP

    @cached_property
    def node_count(self) -> int:
        """How many workers it has. Each launcher's directive says so, and there are thousands of them."""
        return sum(member.role is Role.WORKER for member in self.members)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values; what was counted of the members is counted anew."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("node_count", None)
        return copied

    @property
    def first(self) -> Member | None:
        """The worker of rank 0, to which the others connect; None while there are no members."""
        return next((member for member in self.members if member.rank == 0 and member.role is Role.WORKER), None)

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes that it names, those of its unfenced workers included."""
        return frozenset(m.node for m in self.members if m.node) | {
            unfenced_worker.node for unfenced_worker in self.unfenced_workers
        }

    def obeys_fence_file(self, member: Member) -> bool:
        """Whether the ranks of this member end when the fence file tells them to, in the directory that is known to be
        theirs."""
        return bool(self.fence_file_id) and member.reads_fence_file

    def to_json(self) -> dict[str, Any]:
        """As it is sent to the API server: what members and unfenced workers share is left out, or 4,096 would not fit
        into etcd."""
        spec = super().to_json()
        return {
            **spec,
            "members": Member.compact(spec["members"]),
            "unfencedWorkers": _told_once(spec["unfencedWorkers"]),
        }

    @model_validator(mode="before")
    @classmethod
    def _numbered(cls, data: Any) -> Any:
        """Members of a record of old have neither index nor rank: both were their place in the list."""
        if not isinstance(data, dict):
            return data
        members, unfenced_workers = data.get("members"), data.get("unfencedWorkers")
        if isinstance(members, list):
            data = {**data, "members": [_numbered(member, place) for place, member in enumerate(members)]}
        return {**data, "unfencedWorkers": _each_told(unfenced_workers)} if isinstance(unfenced_workers, list) else data

    @model_validator(mode="after")
    def _members_make_a_gang(self) -> Self:
        """Decisions find members by their index. No schema can say so, and the record may have been edited by hand."""
        seen = Counter(member.index for member in self.members)
        twice = next((index for index, count in seen.items() if count > 1), None)
        if twice is not None:
            raise ValueError(f"members: {seen[twice]} have the index {twice}, and each needs one of its own")
        if self.members and self.first is None:
            raise ValueError("members: none of them is the worker of rank 0, to which the others connect")
        return self


def _numbered(member: Any, place: int) -> Any:
    if isinstance(member, Member):
        missing = {name: place for name in ("index", "rank") if getattr(member, name) < 0}
        return member.model_copy(update=missing) if missing else member
    if isinstance(member, dict):
        index = _or(member.get("index", -1), place)
        return {**member, "index": index, "rank": _or(member.get("rank", -1), index)}
    return member


def _or(number: Any, otherwise: int) -> Any:
    return otherwise if number == -1 else number


def _told_once(unfenced_workers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Unfenced workers as `UnfencedWorker` says they are written."""
    found: list[dict[str, Any]] = []
    before: dict[str, Any] = {}
    for unfenced_worker in unfenced_workers:
        shared = {name: unfenced_worker[name] for name in _SHARED}
        own = {name: value for name, value in unfenced_worker.items() if name not in _SHARED and value != ""}
        found.append(own | {name: value for name, value in shared.items() if before.get(name) != value})
        before = shared
    return found


def _each_told(unfenced_workers: list[Any]) -> list[Any]:
    """The way back."""
    found: list[Any] = []
    before: dict[str, Any] = {}
    for unfenced_worker in unfenced_workers:
        told = {**before, **unfenced_worker} if isinstance(unfenced_worker, dict) else unfenced_worker
        before = {name: told[name] for name in _SHARED if name in told} if isinstance(told, dict) else {}
        found.append(told)
    return found


_SHARED = tuple(map(to_camel, _LIKE_THE_ONE_BEFORE))


class Gang(ApiModel):
    """The commit record of one TrainingJob; same name and namespace, owned by it."""

    metadata: ObjectMeta
    spec: GangSpec

    def to_json(self) -> dict[str, Any]:
        """The same, as its spec is sent."""
        return {**super().to_json(), "spec": self.spec.to_json()}
