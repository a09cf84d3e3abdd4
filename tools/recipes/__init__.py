"""Runs the examples of training frameworks on a cluster, with faults: `python -m recipes`."""
