"""Fencing: what proves that the ranks of a former pod have ended, so that others may start in their place. Pure."""
