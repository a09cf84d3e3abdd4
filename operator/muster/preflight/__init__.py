"""Burn-in: which hardware is proved before the first step, which node is at fault where it is not, and what to test."""
