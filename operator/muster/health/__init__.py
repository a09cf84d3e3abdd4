"""What evidence against a node means: sources, verdicts, memory and the breaker. Pure functions."""
