"""What an Event's note may be, and whose go first."""

import json
from typing import Any

import pytest

from muster.kube.errors import AlreadyExists
from muster.kube.events import MAX_NOTE_BYTES, MAX_PENDING, NORMAL, EventRecorder, Regarding


class Api:
    def __init__(self) -> None:
        self.notes: list[str] = []

    async def post(self, _: str, body: dict[str, Any]) -> None:
        self.notes.append(json.loads(json.dumps(body))["note"])


async def posted(note: str) -> str:
    api = Api()
    recorder = EventRecorder(api, "muster.dev/operator", "muster-0")  # type: ignore[arg-type]
    recorder.record(Regarding("muster.dev/v1alpha1", "TrainingJob", "j", "u", "ns"), NORMAL, "Placed", note)
    await recorder.flush()
    assert len(api.notes) == 1
    return api.notes[0]


@pytest.mark.parametrize("note", ["", "short", "x" * MAX_NOTE_BYTES, "é" * (MAX_NOTE_BYTES // 2)])
async def test_a_note_that_fits_stays_as_it_is(note: str) -> None:
    assert await posted(note) == note


@pytest.mark.parametrize("letter", ["x", "é", "語", "🚂"])
@pytest.mark.parametrize("shift", range(4))
async def test_a_long_note_is_cut_between_characters(letter: str, shift: int) -> None:
    note = "-" * shift + letter * (MAX_NOTE_BYTES + 1)
    cut = await posted(note)
    assert MAX_NOTE_BYTES - 6 <= len(cut.encode()) <= MAX_NOTE_BYTES
    assert cut.endswith("...")
    assert note.startswith(cut.removesuffix("..."))


async def test_what_steers_a_terminal_or_is_no_unicode_is_replaced() -> None:
    assert await posted("rank 3 said\n\ud83d\x1b[31m\u202eok") == "rank 3 said\n\ufffd\ufffd[31m\ufffdok"


async def test_a_namespace_with_thousands_of_events_hides_nobody_elses() -> None:
    api = Api()
    recorder = EventRecorder(api, "muster.dev/operator", "muster-0")  # type: ignore[arg-type]

    def record(namespace: str, note: str) -> None:
        about = Regarding("muster.dev/v1alpha1", "TrainingJob", "j", "u", namespace)
        recorder.record(about, NORMAL, "InvalidSpec", note)

    record("few", "first")
    for number in range(MAX_PENDING + 10):
        record("many", str(number))
    record("few", "last")
    await recorder.flush()
    assert api.notes[:4] == ["first", "12", "last", "13"]
    assert len(api.notes) == MAX_PENDING
    assert (recorder._count, recorder._pending) == (0, {})


async def test_an_event_that_a_tenant_has_made_to_nest_deep_is_counted_on_as_any_other() -> None:
    nested = b'{"metadata":{"managedFields":[%s]},"series":{"count":4}}' % (b'{"f:a":' * 3000 + b"{}" + b"}" * 3000)
    patched: list[dict[str, Any]] = []

    class Taken:
        async def post(self, *_: Any) -> None:
            raise AlreadyExists(409, "AlreadyExists", "it stands")

        async def get(self, _: str) -> bytes:
            return nested

        async def patch(self, _: str, body: dict[str, Any]) -> None:
            patched.append(body)

    recorder = EventRecorder(Taken(), "muster.dev/operator", "muster-0")  # type: ignore[arg-type]
    recorder.record(Regarding("muster.dev/v1alpha1", "TrainingJob", "j", "u", "ns"), NORMAL, "Placed", "note")
    await recorder.flush()
    assert [body["series"]["count"] for body in patched] == [5]
