"""The start of a gang, from its nodes to its ranks, as an ordered list of gates. Pure.

Each gate returns the plan of a start that goes no further now, or None to let it pass. The last gate of a list always
returns a plan: of the start itself, or of what that waits for.
"""

from collections.abc import Callable

from muster.api.gang import Gang
from muster.lifecycle.plan import Plan
from muster.lifecycle.start_barrier import await_all_pods, open_barrier
from muster.lifecycle.start_burn_in import burn_in, burn_in_before_pods
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_earlier_attempts import await_fences, back_off, list_checkpoints_again
from muster.lifecycle.start_nodes import (
    give_members_nodes,
    move_late_workers,
    move_off_closed_nodes,
    move_off_nodes_outside,
    return_nodes_beyond_limit,
)
from muster.lifecycle.start_pods import (
    await_bindable_pods,
    bind_pods,
    check_template_shape,
    create_pods,
    record_pod_uids,
)
from muster.pods.worker_pod import WorkerSettings
from muster.recovery.modes import mode_of
from muster.world.job import JobWorld

Gate = Callable[[StartContext], Plan | None]

MANAGED: tuple[Gate, ...] = (
    # The limit of the namespace may have no room for the nodes that the record names: no pod is made on them.
    return_nodes_beyond_limit,
    # All or nothing: no pod is made before each member has a node.
    give_members_nodes,
    # No pod comes to a node that the FleetPolicy's scope leaves out, whenever it was chosen.
    move_off_nodes_outside,
    # Former ranks may have saved until they were fenced: what launchers listed before that does not count.
    list_checkpoints_again,
    # After the assembly timeout nothing more is awaited of a worker that does not run on its node.
    move_late_workers,
    # A node that was closed before its pod was bound is left at once, not only after that timeout.
    move_off_closed_nodes,
    # No pod can be made of a misshapen template.
    check_template_shape,
    # Pods are made while nodes are tested: `step.decide` orders the tests of every gang that has not started.
    create_pods,
    # All pods are bound together: while one of them cannot be, none is.
    await_bindable_pods,
    bind_pods,
    # No rank starts on a node that has to pass a test first.
    burn_in,
    # A pause after repeated failures is spent with the pods in place.
    back_off,
    # Launchers wait at the barrier. It opens once they agree on the checkpoint to start from.
    open_barrier,
)
"""The gates of a gang with a start barrier."""

PLAIN: tuple[Gate, ...] = (
    # As in MANAGED.
    return_nodes_beyond_limit,
    give_members_nodes,
    move_off_nodes_outside,
    # Ranks start with their pods, so a pause after repeated failures comes before the first pod.
    back_off,
    # For the same reason former ranks have to be fenced by then: no barrier keeps the new ones from training beside
    # them.
    await_fences,
    # As in MANAGED. A worker whose pod no gate has let be made yet is not late.
    move_late_workers,
    move_off_closed_nodes,
    # Nodes are tested before the first pod: a test beside ranks that train says nothing.
    burn_in_before_pods,
    # As in MANAGED.
    check_template_shape,
    create_pods,
    await_bindable_pods,
    # A pod that is bound may train: which pods are the members' is on record before that.
    record_pod_uids,
    bind_pods,
    # The attempt has begun once all pods run.
    await_all_pods,
)
"""The gates of a gang whose ranks start with their pods."""


def plan(world: JobWorld, gang: Gang, settings: WorkerSettings) -> Plan:
    """Return the plan of a gang whose ranks have not started: that of the first gate that returns one."""
    start = StartContext(world, gang.spec, settings)
    gates = PLAIN if mode_of(world.job).starts_with_pods else MANAGED
    return next(filter(None, (gate(start) for gate in gates)))
