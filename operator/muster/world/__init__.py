"""Define immutable views of everything that a decision may read. Pure: no clock, no network, no randomness."""
