"""Names as people order them: gpu-2 before gpu-10."""

import re
from functools import lru_cache

NaturalKey = tuple[str | int, ...]

_NUMBER = re.compile(r"(\d+)", re.ASCII)


@lru_cache(maxsize=1 << 17)
def natural(name: str) -> NaturalKey:
    """The key to sort by: text and numbers in turn, text first. Equal for names that differ in leading zeros only."""
    parts = _NUMBER.split(name)
    return tuple(int(part) if index % 2 else part for index, part in enumerate(parts))
