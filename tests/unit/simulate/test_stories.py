"""Stories that once showed a defect. Played again, they violate nothing.

Each is a file in stories/: a seed, faults, and what was violated. tests/unit/nightly/simulate/defects.py puts the defect
back, and the story shows it. Each purpose and object of a life draws from a stream of its own, so that a change of the
sources moves what it touches, and nothing else.
"""

from pathlib import Path

import pytest

from muster.simulate import stories
from muster.simulate.play import play

KEPT = sorted((Path(__file__).parent / "stories").glob("*.json"))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_story_violates_nothing(path: Path) -> None:
    outcome = play(stories.read(path))
    assert not outcome.violation, "\n".join([*outcome.tail[-100:], outcome.violation])
