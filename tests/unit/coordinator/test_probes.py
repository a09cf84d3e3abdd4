"""The platform's three questions over real HTTP."""

import aiohttp
import pytest

from muster.coordinator.probes import serve_http


@pytest.mark.parametrize(("wrong", "health", "ready"), [("", 200, 200), ("informer gangs is stale", 500, 503)])
async def test_probes(wrong: str, health: int, ready: int) -> None:
    runner = await serve_http(0, lambda: wrong, lambda: wrong, host="localhost")
    try:
        port = runner.addresses[0][1]
        async with aiohttp.ClientSession(f"http://localhost:{port}") as session:
            for path, want in (("/healthz", health), ("/readyz", ready)):
                async with session.get(path) as response:
                    assert (response.status, await response.text()) == (want, wrong or "ok")
            async with session.get("/metrics") as response:
                assert "python_info" in await response.text()
    finally:
        await runner.cleanup()
