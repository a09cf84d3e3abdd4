"""Stories that once showed a defect. Played again, they violate nothing.

Each is a file in stories/: a seed, faults, and what was violated. tests/unit/nightly/simulate/defects.py puts the
defect back, and the story shows it. Each purpose and object of a life draws from a stream of its own, so that a change
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
