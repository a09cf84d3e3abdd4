"""Where the processes of an all-reduce find each other: what one puts the others get, and what is too much is
refused."""

import base64
import hashlib
import json
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clock import Clock

from muster.node.checker.probes import meeting, orders
from muster.node.checker.probes.catalog import PROBES
from muster.node.checker.probes.meeting import Meeting

WAIT_SECONDS = 20.0


class Site:
    """Zygotes and a coordinator between them: what any process puts stands in the file of all."""

    def __init__(self, path: Path) -> None:
        self.path = str(path / "meeting")
        self.puts: dict[tuple[int, str], dict[str, Any]] = {}
        self.lines = 0

    def say(self, line: dict[str, Any]) -> None:
        put = json.loads(json.dumps(line))["put"]
        self.lines += 1
        self.puts[put["rank"], put["key"]] = put
        meeting.write(self.path, self.puts.values())

    def process(self, rank: int) -> Meeting:
        return Meeting(self.say, self.path, rank, WAIT_SECONDS)


@pytest.fixture
def site(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.setattr(meeting, "time", SimpleNamespace(monotonic=clock, sleep=clock.advance))
    return Site(tmp_path)


def test_what_one_puts_the_others_get(site: Site) -> None:
    one, other = site.process(0), site.process(1)
    assert not other.check(["address"])
    one.set("address", b"\0" * 8000)
    assert (other.get("address"), one.get("address")) == (b"\0" * 8000, b"\0" * 8000)
    assert other.check(["address"])
    assert (one.count(), other.count()) == (1, 1)
    one.set("address", b"\0" * 8000)
    assert site.lines == 1, "the same is not said again"


def test_a_number_is_the_sum_of_what_all_have_added(site: Site) -> None:
    one, other = site.process(0), site.process(1)
    assert [one.add("n", 1), other.add("n", 2), one.add("n", 0), one.add("n", 3)] == [1, 3, 3, 6]
    assert other.get("n") == b"6"


def test_all_have_to_be_there(site: Site, clock: Clock) -> None:
    began = clock.now
    with pytest.raises(RuntimeError, match=r"timed out after 20 s: no node has put muster/here/1$"):
        site.process(0).gather(2)
    assert clock.now - began == pytest.approx(WAIT_SECONDS, abs=0.1)
    site.process(1).gather(2)
    site.process(0).gather(2)


def test_what_is_too_much_is_refused(site: Site) -> None:
    one = site.process(0)
    for number in range(meeting.MAX_PUTS):
        one.set(f"k{number}", b"x")
    for key in ("one more", "", "x" * 129):
        with pytest.raises(RuntimeError, match="too many keys for a meeting, or one too long"):
            one.set(key, b"x")
    noise = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(1000))
    with pytest.raises(RuntimeError, match="too large"):
        one.set("k1", noise)
    one.set("k1", b"another value")


@pytest.mark.parametrize(
    "text",
    ["no base64!", base64.b64encode(b"no zlib").decode(), base64.b64encode(zlib.compress(b"\0" * 10**7)).decode()],
)
def test_what_another_node_puts_is_no_danger(text: str) -> None:
    with pytest.raises(RuntimeError, match="what another node has put"):
        meeting.unpacked(text)


def test_what_others_have_put_comes_to_the_zygote_in_one_line() -> None:
    put = {"rank": 1, "key": "k", "value": "", "add": 2}
    found = orders.parse(json.dumps({"meet": "7", "puts": [put]}).encode(), PROBES)
    assert found == orders.Meet("7", (put,))
    for wrong in (None, [None], [{**put, "rank": "1"}], [{"rank": 1}], [{**put, "more": 1}]):
        with pytest.raises(orders.OrderError):
            orders.parse(json.dumps({"meet": "7", "puts": wrong}).encode(), PROBES)
