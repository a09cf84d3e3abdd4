"""Estimates how much a gang would get done: failures at given rates against the shipped recovery, in simulated time.
Pure."""
