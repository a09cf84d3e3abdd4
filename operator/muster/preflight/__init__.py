"""Burn-in: which hardware is proved before the first step, whom to blame where it is not, and what to run for that."""
