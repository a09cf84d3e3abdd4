"""Checkers in one process: muster.node.checker's own core and lines, a token of each node over TLS, and probes that are
played.

What they test takes as long as it is told to take, and every figure is good.
"""
