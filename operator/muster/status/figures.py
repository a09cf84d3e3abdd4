"""Figures for people alone: a defect in them must not keep a job from being decided."""

import logging
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_log = logging.getLogger(__name__)
_logged: set[tuple[str, type[Exception]]] = set()


def compute_or_fallback(figures_name: str, work_out: Callable[[], T], otherwise: T) -> T:
    """Return the result of a computation for status texts; where it fails, the given fallback.

    The error is logged once for each kind: a defect in a figure must not keep a job from being decided.

    Args:
        figures_name: the name of the figures, for the log.
        work_out: computes them.
        otherwise: the fallback.
    """
    try:
        return work_out()
    except Exception as error:  # noqa: BLE001 - it is logged there
        if (figures_name, type(error)) not in _logged:
            _logged.add((figures_name, type(error)))
            _log.exception(
                "%s could not be computed, which is a defect of Muster: the published figures stay as they are",
                figures_name,
            )
        return otherwise
