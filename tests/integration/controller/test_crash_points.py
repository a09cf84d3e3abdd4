"""The operator dies before and after every write of a job's life, one operator after the other; the end is the same.

tests/integration/nightly/controller/test_crash_points.py has each point in a life of its own, and the points at which
an Event or a routine status is written.
"""

from dataclasses import dataclass, replace

from stage.launcher import Training
from stage.scene import Scene

NODES = 3
LAST_STEP = 20


@dataclass(frozen=True)
class Act:
    """A part of a job's life: how it begins, and how it has ended.

    Attributes:
        writes: kind of write -> how many of it there are.
        attempt: the job's attempt when it has ended.
        incarnations: of the workers' pods, by index, when it has ended.
        level: of the record.
    """

    name: str
    writes: dict[str, int]
    attempt: int = 1
    incarnations: tuple[int, ...] = (1, 1, 1)
    level: str = "Start"


# How often the status is written in between depends on timing: of these as many as there always are.
STATUS = "PATCH trainingjobs/status"
START = Act(
    "start",
    {
        "POST secrets": 2,  # the authorities, and the coordinator's certificate
        "POST pods": 1 + NODES,  # the trial of the template, the workers
        "POST gangs": 1,
        "PATCH poddisruptionbudgets": 1,
        "PATCH configmaps": 1,
        "PUT gangs": 1,  # the go
        STATUS: 2,
        "POST events": 3,  # one is the warning that a single process has all GPUs
    },
)
IN_PLACE = Act("R0", {"PUT gangs": 2, STATUS: 1, "POST events": 2}, 2, (1, 1, 1), "R0")
REPLACE = Act(
    "R2",
    {
        "PUT gangs": 2,
        "DELETE pods": 1,
        # What workers share is there already, unless somebody has deleted it: that is not looked up but put right.
        "PATCH poddisruptionbudgets": 1,
        "PATCH configmaps": 1,
        "POST pods": 1,
        STATUS: 2,
        "POST events": 2,
    },
    2,
    (1, 2, 1),
    "R2",
)
FINISH = Act("finish", {STATUS: 1, "POST events": 1, "POST endedjobs": 1})


async def begin(scene: Scene, act: Act, training: Training) -> None:
    """Let happen what the act is about."""
    if act.name == "R0":
        training.hold_at = 14
        scene.hand.launchers()[1].fail(signal=9)
    elif act.name == "R2":
        training.hold_at = 14
        await scene.hand.shut_down(scene.hand.worker(1).node)
    elif act.name == "finish":
        training.hold_at = LAST_STEP


async def ended(scene: Scene, act: Act, training: Training) -> None:
    """Wait until it is over."""
    if act.name == "finish":
        await scene.succeeded()
        return
    await scene.training_at(act.attempt, training)
    await scene.state("Running")


async def same_end(scene: Scene, act: Act, status: dict[str, object]) -> None:
    gang = await scene.gang()
    assert gang is not None
    assert (gang["attempt"], gang["level"]) == (act.attempt, act.level)
    assert tuple(member["incarnation"] for member in gang["members"]) == act.incarnations
    assert len({member["node"] for member in gang["members"]}) == NODES
    assert len(gang["incidents"]) == status["restarts"] == act.attempt - 1
    assert status["state"] == "Succeeded"
    assert status["attempt"] == act.attempt
    created = sorted((worker.index, worker.incarnation) for worker in scene.hand.workers.values())
    wanted = [(index, n) for index, last in enumerate(act.incarnations) for n in range(1, last + 1)]
    assert created == wanted, "each pod is created once"
    # On a busy machine a launcher may not hear of the end within the 30 s after which its pod is deleted.
    left = {pod["metadata"]["uid"] for pod in await scene.pods()}
    assert left <= {member["podUid"] for member in gang["members"]}, "no other pod is left"
    for attempt in range(1, act.attempt + 1):
        assert scene.ledger.started(attempt) == list(range(NODES))
    assert len(scene.ledger.starts) == NODES * act.attempt


def around(*writes: str) -> tuple[str, ...]:
    """The points before and after each of these writes; each operator counts its own from one."""
    return tuple(f"{moment} {kind} 1" for kind in writes for moment in ("before", "after"))


# In the order in which they are written. Events are left out: an operator that takes over does not repeat them. Workers
# are created side by side, and so is what they share: what else exists after the first answer, nobody can say.
SHARED = ("before PATCH poddisruptionbudgets 1", "before PATCH configmaps 1", "after PATCH configmaps 1")
LIFE = (
    (START, (*around("POST secrets", "POST pods", "POST gangs", "POST pods", "PUT gangs"), *SHARED)),
    (IN_PLACE, around("PUT gangs", "PUT gangs")),
    (replace(REPLACE, attempt=3), around("PUT gangs", "DELETE pods", "POST pods", "PUT gangs")),
    (
        replace(FINISH, attempt=3, incarnations=REPLACE.incarnations, level=REPLACE.level),
        around(STATUS, "POST endedjobs"),
    ),
)


async def test_operators_that_die_before_and_after_every_write_come_to_the_same_end(scene: Scene) -> None:
    await scene.add_nodes(NODES + 1, "n")
    operator = await scene.operators.start(fatal=LIFE[0][1][0])
    training = await scene.create_job(nodes=NODES, training={"last_step": LAST_STEP})
    for act, (first, *others) in LIFE:
        if act is not START:
            await operator.arm(first)
        await begin(scene, act, training)
        for point in (*others, ""):
            await operator.death()
            operator = await scene.operators.succeed(scene.api, fatal=point)
        if act is not LIFE[-1][0]:
            await ended(scene, act, training)
    job = await scene.succeeded()
    await same_end(scene, LIFE[-1][0], job["status"])
