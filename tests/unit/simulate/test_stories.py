"""Stories that once showed a defect. Played again, they violate nothing.

Each is a file in stories/: a seed, faults, and what was violated. tests/unit/nightly/simulate/defects.py puts the
defect back, and the story shows it. A story with `until` ends then: its defect shows itself before, and nightly/ plays
it to its end. Each purpose and object of a life draws from a stream of its own, so that a change
of the sources moves what it touches, and nothing else.
"""

from pathlib import Path

import pytest

from simulate import stories
from simulate.play import Story, play


def told_once() -> dict[str, Story]:
    """Each life with the names of its files: where one has shown two defects, both files tell the same."""
    names: dict[str, list[str]] = {}
    told: dict[str, Story] = {}
    for path in sorted((Path(__file__).parent / "stories").glob("*.json")):
        story = stories.read(path)
        told[repr(story)] = story
        names.setdefault(repr(story), []).append(path.stem)
    return {", ".join(names[key]): story for key, story in told.items()}


KEPT = told_once()


@pytest.mark.parametrize("name", KEPT)
def test_a_story_violates_nothing(name: str) -> None:
    outcome = play(KEPT[name])
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])


def test_a_story_with_until_is_kept_and_ends_then(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    stories.write(path, Story(1, [], until=40.0))
    outcome = play(stories.read(path))
    assert not outcome.violation, outcome.violation
    assert outcome.seconds == pytest.approx(40.0, abs=1.0)
