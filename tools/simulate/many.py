"""Many lives, one after the other or side by side. No part of the program's own module: other processes have to import
it."""

import gc
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

from muster.controller.settings import COLLECT_AFTER
from simulate.play import Outcome, play, story


def lives(first: int, seeds: int, seconds: float, jobs: int) -> Iterator[tuple[Outcome, float]]:
    """Life after life by seed, until the time is over; with what each took of the processor."""
    until = time.monotonic() + seconds
    if jobs <= 1:
        for seed in range(first, first + seeds):
            if time.monotonic() > until:
                return
            yield _lived(seed)
        return
    coming: Iterator[int] = iter(range(first, first + seeds))
    with ProcessPoolExecutor(jobs, max_tasks_per_child=100) as pool:
        under_way: dict[Future[tuple[Outcome, float]], int] = {}
        try:
            while True:
                while (
                    len(under_way) < jobs
                    and time.monotonic() < until
                    and (coming_seed := next(coming, None)) is not None
                ):
                    under_way[pool.submit(_lived, coming_seed)] = coming_seed
                if not under_way:
                    return
                ended, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda one: under_way[one]):
                    del under_way[future]
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _lived(seed: int) -> tuple[Outcome, float]:
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    begun = time.process_time()
    return play(story(seed)), time.process_time() - begun
