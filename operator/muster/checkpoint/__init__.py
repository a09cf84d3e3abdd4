"""Which checkpoints in a directory are complete, without importing any framework.

`find.py` is the only part that orchestrates reading; `scan.py`, `dcp.py` and `manifest.py` are pure over what was read.
It runs on the Python of the user's image: standard library only.
"""
