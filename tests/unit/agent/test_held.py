"""Which GPU is left out because NVML hangs at it, and for how long."""

from muster.node.agent.held import Held


def test_a_gpu_is_left_out_that_holds_two_batches_up_and_longer_each_time() -> None:
    held = Held(60.0)
    assert not held.hung(3, "fast", 100.0)
    assert held.skipped_gpus(100.0) == frozenset()
    assert held.hung(3, "start", 110.0)
    assert held.skipped_gpus(169.9) == {3}
    assert held.skipped_gpus(170.0) == frozenset()
    assert held.hung(3, "start", 200.0)
    assert held.skipped_gpus(319.0) == {3}
    for _ in range(20):
        held.hung(3, "start", 1000.0)
    assert held.skipped_gpus(4599.0) == {3}
    assert held.skipped_gpus(4600.0) == frozenset()


def test_two_slow_batches_in_a_day_leave_nobody_out() -> None:
    held = Held(60.0)
    held.hung(3, "normal", 100.0)
    held.answered([0, 1, 2, 3], "fast")  # that it answers other questions does not count
    assert held.hung(3, "normal", 110.0)
    held.answered([0, 1, 2, 3], "normal")
    assert held.skipped_gpus(111.0) == frozenset()
    assert not held.hung(3, "normal", 90000.0)


def test_hangs_at_different_gpus_are_the_drivers() -> None:
    held = Held(60.0)
    assert not any(held.hung(gpu, "fast", 100.0) for gpu in range(8))
    held.hung(0, "fast", 200.0)
    held.clear()
    assert held.skipped_gpus(200.0) == frozenset()
