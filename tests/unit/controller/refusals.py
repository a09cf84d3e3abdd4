"""Jobs whose templates the API server refuses, and how often it is asked about them."""

import random
from collections import Counter
from typing import Any

from tests.unit.controller.conftest import a_job

from muster.controller.perform import Performer
from muster.kube import jitter
from muster.kube.errors import ApiError, Forbidden
from muster.lifecycle.plan import CheckTemplate, Plan

QUOTA = Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: few')
FOR_GOOD = Forbidden(403, "Forbidden", 'pods "x" is forbidden: violates PodSecurity "restricted"')


async def carry_out(performer: Performer, job: Any, plan: Plan) -> None:
    """All that a pass writes."""
    await performer.perform(job, plan)
    await performer.conclude(job, plan)


MOST_PER_HOUR = {QUOTA: 16.2, FOR_GOOD: 5.4}
"""How often the API server may be asked about one job that has been refused for more than an hour."""


async def jobs_ask_less_and_less(scene: Any, refused: ApiError, count: int) -> None:
    """So many of them, for more than two hours."""
    performer = Performer(scene.api, scene.cluster, scene.clock)
    jitter.generator.set(random.Random(1))
    scene.api.refuse["POST"] = refused
    jobs = [a_job(f"j{number}") for number in range(count)]
    due = dict.fromkeys(range(count), 0.0)
    asked: list[float] = []
    while scene.clock.now < 8200.0:
        scene.clock.now = max(scene.clock.now, min(due.values()))
        for number in [number for number, at in due.items() if at <= scene.clock.now]:
            asked.append(scene.clock.now)
            await carry_out(performer, jobs[number], Plan((CheckTemplate({"metadata": {}}, 1),)))
            due[number] = (
                scene.clock.now + scene.cluster.memory(jobs[number].metadata.uid).template_verdict.retry_seconds
            )
        scene.clock.advance(10.0)
    late = [at for at in asked if at >= 4600.0]
    assert len(late) <= count * MOST_PER_HOUR[refused]
    busiest = max(Counter(int(at // 30) for at in late).values())
    assert busiest <= 3 * len(late) / 120, "they do not come together"
