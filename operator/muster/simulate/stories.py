"""Stories in files: one JSON object, so that a life that failed can be read, kept, and played again."""

import json
from pathlib import Path
from typing import Any

from muster.simulate.faults import KINDS, Fault
from muster.simulate.jobs import DAYS
from muster.simulate.play import Story


class StoryError(ValueError):
    """A file that tells no story; says where."""


def write(path: Path, story: Story, violation: str = "") -> None:
    """Keep a story, and what it showed."""
    document = {
        "seed": story.seed,
        "sparse": story.sparse,
        "day": story.day,
        "violation": violation,
        "faults": [fault.to_json() for fault in story.faults],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def read(path: Path) -> Story:
    """A story that was kept.

    Raises:
        StoryError: it cannot be read, or names a fault that there is not.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        faults = [Fault.from_json(item) for item in document["faults"]]
        story = Story(
            int(document["seed"]), faults, bool(document.get("sparse", False)), str(document.get("day", "Three"))
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoryError(f"{path} tells no story: {error}") from error
    if story.day not in DAYS:
        raise StoryError(f"{path}: day is {story.day!r}; there are {', '.join(DAYS)}")
    for number, fault in enumerate(story.faults):
        if fault.kind not in KINDS:
            raise StoryError(f"{path}: faults[{number}].kind is {fault.kind!r}; there are {', '.join(sorted(KINDS))}")
    return story
