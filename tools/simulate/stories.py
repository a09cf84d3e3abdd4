"""Stories in files: one JSON object, so that a life that failed can be read, kept, and played again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simulate.fault import Fault
from simulate.faults import KINDS
from simulate.jobs import DAYS
from simulate.play import Story


class StoryError(ValueError):
    """A file that tells no story; says where."""


def write(path: Path, story: Story, violation: str = "") -> None:
    """Keep a story with what it showed, one fault a line. Fields with their default value are left out."""
    told = {"seed": story.seed, "sparse": story.sparse, "day": story.day, "large": story.large, "lasts": story.lasts}
    faults_told = [_Fault(**asdict(fault)) for fault in story.faults]
    model = _Story(**told, until=story.until, violation=violation, faults=faults_told)
    document = model.model_dump(exclude_defaults=True)
    faults = ",\n  ".join(json.dumps(fault) for fault in document.pop("faults", ()))
    head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in document.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{\n{head} "faults": [\n  {faults}\n ]\n}}\n')


class _Fault(BaseModel):
    """A fault as somebody may write it by hand."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)
    at: float = Field(ge=0)
    kind: Literal[*KINDS]  # type: ignore[valid-type]
    job: str = ""
    number: int = Field(0, ge=0)
    count: int = Field(1, ge=1)
    seconds: float = Field(0.0, ge=0)
    amount: float = 0.0


class _Story(BaseModel):
    """A story as somebody may write it by hand.

    Attributes:
        violation: what it showed when it was kept.
        note: how it comes to that.
    """

    model_config = ConfigDict(extra="forbid")
    seed: int
    faults: list[_Fault]
    sparse: bool = False
    day: Literal[*DAYS] = "Three"  # type: ignore[valid-type]
    large: bool = False
    lasts: bool = False
    until: float = Field(0.0, ge=0)
    violation: str = ""
    note: str = ""


def read(path: Path) -> Story:
    """A story that was kept.

    Raises:
        StoryError: it cannot be read, or a field is not as it must be; says which and how it may be.
    """
    try:
        told = _Story.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StoryError(f"{path} tells no story: {_messages_of(error)}") from error
    except OSError as error:
        raise StoryError(f"{path} cannot be read: {error.strerror}") from error
    jobs = DAYS[told.day].jobs
    for number, fault in enumerate(told.faults):
        if fault.job not in jobs and (fault.job or KINDS[fault.kind].of_job):
            raise StoryError(
                f"{path}: faults[{number}].job is {fault.job!r}; the jobs of day {told.day} are {', '.join(jobs)}"
            )
    faults = [Fault(**fault.model_dump()) for fault in told.faults]
    return Story(told.seed, faults, told.sparse, told.day, told.large, told.lasts, told.until)


def _messages_of(error: ValidationError) -> str:
    """The first that is wrong, and how many more there are."""
    first, *others = error.errors()
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    text = first["msg"][0].lower() + first["msg"][1:]
    told = f"{where}, {str(first['input'])[:40]!r}: {text}" if where else text
    return f"{told}; and {len(others)} more" if others else told
