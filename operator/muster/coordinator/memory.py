"""Gives memory back after a crowd: a thousand TLS handshakes at once take twice what the open connections keep.

glibc keeps freed memory that lies between what is in use, and nothing here ever needs as much again, so without this the
operator's memory would for ever be that of its busiest second. And a connection that is gone is a circle of objects: some
fifty kilobytes that nobody frees before the collector looks at old objects, which it does after tens of millions of new ones.
"""

import ctypes
import gc


def give_back(*, garbage: bool) -> bool:
    """Return freed memory to the system, in some milliseconds; False where the C library cannot (it is not glibc).

    Args:
        garbage: look for circles of dead objects first: about 50 ms with 2,048 nodes and their workers.
    """
    if garbage:
        gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
