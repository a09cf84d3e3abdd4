"""Background tasks run until they end or their server does."""

import asyncio

from muster.coordinator.tasks import Tasks


async def test_all_tasks_have_ended_once_they_are_cancelled() -> None:
    tasks, ended = Tasks(), list[str]()

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(name)

    started = [tasks.spawn(work(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    await tasks.cancel()
    assert sorted(ended) == ["a", "b"]
    assert all(task.cancelled() for task in started)


async def test_a_task_that_fails_hinders_no_end() -> None:
    tasks = Tasks()

    async def fail() -> None:
        raise ValueError

    failed = tasks.spawn(fail())
    await asyncio.wait([failed])
    assert isinstance(failed.exception(), ValueError)
    await tasks.cancel()
