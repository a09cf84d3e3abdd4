"""What a life shows that must not be."""

from collections.abc import Callable

Hold = Callable[[str, bool, str], None]  # told of a rule, whether it holds, and what is wrong if it does not


class ViolationError(AssertionError):
    """Something that must never be has been."""
