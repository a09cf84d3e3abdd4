"""Immutable views of everything a decision may look at. Pure: no clock, no network, no randomness."""
