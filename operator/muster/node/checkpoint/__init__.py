"""Which checkpoints in a directory are complete, without importing any framework.

`find.py` is the only part that orchestrates reading; what a format asks for is in `formats/`, over a listing and small
reads. It runs on the Python of the user's image: standard library only.
"""
