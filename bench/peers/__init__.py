"""The systems that the gang bench compares, each the way its own project would have it started."""
