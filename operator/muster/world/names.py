"""Derive deterministic names: creating twice is harmless, and a job re-created under its old name adopts nothing.

Texts for people shorten lists of names here, and fit verbs to numbers, all in one way.

Tests: tests/unit/world/test_world.py.
"""

import functools
import hashlib
from collections.abc import Sequence

PLACE_DIGITS = 32
MAX_IN_NOTE = 8  # names of nodes that an Event has room for


@functools.lru_cache(maxsize=4096)
def job_digest(job_uid: str) -> str:
    """Compute five hexadecimal digits that distinguish jobs of one name."""
    return hashlib.sha256(job_uid.encode()).hexdigest()[:5]


def place_digest(text: str) -> str:
    """Compute 32 hexadecimal digits of the text that says where a job saves, which a tenant can make very long; "" of
    none."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:PLACE_DIGITS] if text else ""


def gang_name(job: str, job_uid: str) -> str:
    """Return the name of a job's Gang, and of the objects that all its workers share."""
    return f"{job}-{job_digest(job_uid)}"


def job_name(gang: str, job_uid: str) -> str:
    """Return the name of the job whose Gang has this name."""
    return gang.removesuffix(f"-{job_digest(job_uid)}")


def pod_name(job: str, job_uid: str, index: int, incarnation: int) -> str:
    """Return the name of one worker's pod; each incarnation has its own."""
    return pod_name_in(gang_name(job, job_uid), index, incarnation)


def pod_name_in(gang: str, index: int, incarnation: int) -> str:
    """Return the pod's name from the Gang's name, for callers with thousands of pods."""
    return f"{gang}-{index}-{incarnation}"


def index_of(pod: str) -> int:
    """Return the worker's index from the name of its pod."""
    return int(pod.rsplit("-", 2)[1])


def nodes_text(count: int, kind: str = "") -> str:
    """Return a number of nodes in words: `1 node`, `2 more nodes`."""
    return f"{count} {kind + ' ' if kind else ''}node{'s' if count != 1 else ''}"


def verb_for(count: int) -> str:
    """Return `is` or `are`, to fit the number."""
    return "is" if count == 1 else "are"


def shortened(names: Sequence[str], most: int = MAX_IN_NOTE) -> str:
    """Return the first names, and how many more there are: `a, b and 3 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
