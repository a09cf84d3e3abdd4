"""The simulator's faults, made on the nodes of the real local cluster: `make attack`."""
