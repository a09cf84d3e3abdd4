"""One tab of a Chromium without a window, by the DevTools protocol over the WebSocket client that the operator has
already."""

import asyncio
import base64
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from browser import chromium

START_SECONDS = 60.0
CALL_SECONDS = 30.0
# The browser shows only pages of this repository, and in a container of root it has no sandbox.
OPTIONS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-port=0")


class BrowserError(Exception):
    """The browser refused, or the page threw."""


class Tab:
    """A tab.

    Attributes:
        complaints: what the page wrote to its console as an error, what it threw, and what its policy forbade.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol.

        Raises:
            BrowserError: it refused.
            TimeoutError: no answer.
        """
        number = len(self._answers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        return await asyncio.wait_for(self._answers[number], CALL_SECONDS)

    async def listen(self) -> None:
        """Take in what the browser says, until it is gone."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                waiting = self._answers[said["id"]]
                if not waiting.done():
                    if "error" in said:
                        waiting.set_exception(BrowserError(str(said["error"])))
                    else:
                        waiting.set_result(said["result"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["params"]["exceptionDetails"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.complaints.append(said["params"]["entry"]["text"])
            elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] == "error":
                self.complaints.append(json.dumps(said["params"]["args"]))

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited.

        Raises:
            BrowserError: it threw.
        """
        answer = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    async def until(self, script: str, seconds: float = 90.0) -> Any:
        """Wait until an expression is true; its value.

        Raises:
            TimeoutError: it has not become so.
        """
        try:
            async with asyncio.timeout(seconds):
                while not (value := await self.run(script)):  # noqa: ASYNC110 - the page's progress, not ours
                    await asyncio.sleep(0.02)
                return value
        except TimeoutError as error:
            text = await self.run("document.body.innerText.slice(0, 2000)")
            raise TimeoutError(f"{script} has not become true; the page says: {text}; {self.complaints}") from error

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    async def screen(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set size and colour scheme."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def photograph(self, file: Path) -> None:
        """Write what is seen as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)
        await asyncio.to_thread(_write, file, base64.b64decode(answer["data"]))


@contextlib.asynccontextmanager
async def opened(address: str) -> AsyncIterator[Tab]:
    """A tab that shows an address.

    Raises:
        RuntimeError: there is no browser and none can be fetched.
        TimeoutError: it has not started.
    """
    program, environment = chromium.command(await asyncio.to_thread(chromium.unpacked))
    with tempfile.TemporaryDirectory(prefix="muster-browser-", ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *program,
            *OPTIONS,
            f"--user-data-dir={profile}",
            "about:blank",
            env=environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            port = await _port(Path(profile) / "DevToolsActivePort")
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    targets = await answer.json()
                target = next(each for each in targets if each["type"] == "page")
                async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    tab = Tab(socket)
                    listening = asyncio.create_task(tab.listen())
                    try:
                        for domain in ("Page", "Runtime", "Log"):
                            await tab.call(f"{domain}.enable")
                        await tab.call("Page.navigate", url=address)
                        yield tab
                    finally:
                        listening.cancel()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(file: Path) -> int:
    async with asyncio.timeout(START_SECONDS):
        while not (text := await asyncio.to_thread(_read, file)):  # noqa: ASYNC110 - it is another process
            await asyncio.sleep(0.02)
    return int(text.split()[0])


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
