"""The note of running jobs, of more jobs than it holds."""

import json

from muster.controller.history import packed, unpacked


def the_note_fits(count: int, most: int) -> None:
    """So many jobs in so many bytes."""
    listed = [{"jobUid": f"{number:064x}", "gpus": number, "name": str(hash(str(number)))} for number in range(count)]
    data = packed(listed)
    assert len(data) <= most
    body = json.dumps({"binaryData": {"jobs": data}}).encode()
    specs, unread = unpacked(body)
    assert not specs, "these are no accounts"
    assert 0 < len(unread) <= count
