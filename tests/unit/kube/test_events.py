"""What an Event's note may be."""

import json
from typing import Any

import pytest

from muster.kube.events import MAX_NOTE_BYTES, NORMAL, EventRecorder, Regarding


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


async def test_what_is_no_text_is_replaced() -> None:
    assert await posted("rank 3 said \ud83d") == "rank 3 said ?"
