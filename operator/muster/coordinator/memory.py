"""Gives memory back after a crowd: a thousand TLS handshakes at once take twice what the open connections keep.

glibc keeps freed memory that lies between what is in use, and nothing here ever needs as much again, so without this the
operator's memory would for ever be that of its busiest second.
"""

import ctypes


def give_back() -> bool:
    """Return freed memory to the system, in some milliseconds; False where the C library cannot (it is not glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
