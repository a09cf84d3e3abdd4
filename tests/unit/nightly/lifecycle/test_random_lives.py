"""Faults at random moments, one upon another, with the operator dying in between.

The stage checks at every moment: no rank of an attempt starts while one of another is alive, attempts grow one by one,
members never change within an attempt, two jobs never train on one node, the end is written once. Here is added that
once the faults stop and the nodes suffice, every job finishes.
"""

from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_job
from tests.unit.lifecycle.theatre import VICTIM_TAIL, Play, Theatre

from muster.api.trainingjob import CompletionResult, TrainingJob

# Beyond the exclusion of nodes after a failure there, and the longest back-off.
CALM_SECONDS = 2400.0

Fault = Callable[[Theatre, Play, int], None]


def _with_pod(fault: Fault) -> Fault:
    """The fault, if the worker has a pod; else nothing."""

    def guarded(theatre: Theatre, play: Play, index: int) -> None:
        if play.gang is None or index >= len(play.record.members) or not play.record.members[index].node:
            return
        try:
            theatre.pod_of(play, index)
        except KeyError:
            return
        fault(theatre, play, index)

    return guarded


def _with_launcher(fault: Fault) -> Fault:
    """The fault, if the worker's launcher runs; else nothing."""

    def guarded(theatre: Theatre, play: Play, index: int) -> None:
        if theatre.pod_of(play, index).launcher is not None:
            fault(theatre, play, index)

    return _with_pod(guarded)


def _hang(theatre: Theatre, play: Play, index: int) -> None:
    for rank in theatre.launcher_of(play, index).ranks:
        rank.hung = True


def _stubborn(theatre: Theatre, play: Play, index: int) -> None:
    theatre.launcher_of(play, index).stubborn = True


def _stuck(theatre: Theatre, play: Play, index: int) -> None:
    theatre.pod_of(play, index).stuck = True
    theatre.delete_pod(play, index)


def _mute(theatre: Theatre, play: Play, index: int) -> None:
    theatre.launcher_of(play, index).mute = True


def _node(change: Callable[[Theatre, str], None]) -> Fault:
    def fault(theatre: Theatre, _play: Play, index: int) -> None:
        change(theatre, sorted(theatre.machines)[index % len(theatre.machines)])

    return fault


def _cordon(theatre: Theatre, node: str) -> None:
    theatre.machines[node].cordoned ^= True


def _suspend(theatre: Theatre, play: Play, _index: int) -> None:
    if play.completion is None:
        theatre.set_spec(play, suspend=not play.job.spec.suspend)


FAULTS: dict[str, Fault] = {
    "rank exits": _with_launcher(lambda t, p, i: t.end_rank(p, i, code=3, tail="ValueError")),
    "rank killed": _with_launcher(lambda t, p, i: t.end_rank(p, i, signal=9)),
    "victim exits": _with_launcher(lambda t, p, i: t.end_rank(p, i, code=1, tail=VICTIM_TAIL)),
    "rank hangs": _with_launcher(_hang),
    "rank cannot be killed": _with_launcher(_stubborn),
    "launcher hangs": _with_launcher(_mute),
    "pod deleted": _with_pod(lambda t, p, i: t.delete_pod(p, i)),
    "pod force-deleted": _with_pod(lambda t, p, i: t.force_delete_pod(p, i)),
    "pod does not terminate": _with_pod(_stuck),
    "out of memory": _with_launcher(lambda t, p, i: t.out_of_memory(p, i)),
    "power cut": _node(lambda t, n: t.power_cut(n)),
    "power on": _node(lambda t, n: t.power_on(n)),
    "kubelet stands still": _node(lambda t, n: t.darken(n)),
    "kubelet goes on": _node(lambda t, n: t.darken(n, on=False)),
    "said to be lost": _node(lambda t, n: t.lose(n)),
    "partition": _node(lambda t, n: t.partition(n)),
    "partition heals": _node(lambda t, n: t.partition(n, on=False)),
    "cordon": _node(_cordon),
    "suspend": _suspend,
    "operator dies": lambda t, _p, i: t.kill_operator(float(5 * i)),
    "operator dies after a write": lambda t, _p, i: t.kill_operator_after_writes(i + 1),
}

faults = st.lists(
    st.tuples(
        st.sampled_from(sorted(FAULTS)),
        st.integers(0, 2),  # which job
        st.integers(0, 7),  # which worker or node
        st.sampled_from([0.0, 0.5, 1.0, 3.0, 10.0, 30.0, 70.0]),  # how long until the next
    ),
    max_size=12,
)


def the_jobs(required: bool) -> list[TrainingJob]:
    spec: dict[str, object] = {
        "progress": {"stepTimeoutSeconds": 40, "startTimeoutSeconds": 60},
        "recovery": {"applicationRestartsPerDay": 100, "hardwareRestartsPerDay": 100},
    }
    placement = {"placement": {"required": "rack"}} if required else {}
    plain = {"launch": {"mode": "Plain"}, "checkpoint": {}}
    return [
        a_job("a", **spec, **placement),  # type: ignore[arg-type]
        a_job("b", nodes=2, **spec),  # type: ignore[arg-type]
        a_job("c", nodes=2, **(spec | plain)),  # type: ignore[arg-type]
    ]


@settings(
    max_examples=30,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
)
@given(script=faults, lag=st.sampled_from([0.0, 1.0, 4.0]), required=st.booleans())
def test_random_faults(script: list[tuple[str, int, int, float]], lag: float, required: bool) -> None:
    play_out(script, lag, required)


def play_out(script: list[tuple[str, int, int, float]], lag: float, required: bool) -> None:
    theatre = Theatre(nodes=8, per_rack=4, lag_seconds=lag)
    plays = [theatre.submit(job, total_steps=60) for job in the_jobs(required)]
    theatre.play_on(5)
    for name, job, index, pause in script:
        FAULTS[name](theatre, plays[job], index)
        theatre.play_on(pause)
    calm_down(theatre, plays)
    note(theatre.describe())
    for play in plays:
        assert theatre.finish(play, CALM_SECONDS).result is CompletionResult.SUCCEEDED, theatre.describe()


def calm_down(theatre: Theatre, plays: list[Play]) -> None:
    """Everything that was broken is mended, as far as somebody outside can mend it."""
    for name, machine in theatre.machines.items():
        if not machine.powered:
            theatre.power_on(name)
        machine.partitioned = machine.cordoned = machine.dark = False
    for play in plays:
        if play.job.spec.suspend:
            theatre.set_spec(play, suspend=False)
    for pod in theatre.pods.values():
        pod.stuck = False
        if pod.launcher and pod.launcher.mute and pod.launcher.attempt == 0:
            theatre.delete(pod)  # the leader may never have heard it, and then says so and waits
