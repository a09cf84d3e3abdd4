"""What only people are told: a defect in it must not keep a job from being decided."""

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
_logged: set[tuple[str, type[Exception]]] = set()


def worked_out(what: str, work_out: Callable[[], T], otherwise: T) -> T:
    """The figures, or what is to stand in place of them where they cannot be worked out; logged once for each kind of
    error."""
    try:
        return work_out()
    except Exception as error:  # noqa: BLE001 - it is logged there
        if (what, type(error)) not in _logged:
            _logged.add((what, type(error)))
            _log.exception("%s could not be worked out, a defect of Muster: what was told before stands", what)
        return otherwise
