"""The bench of the queue: published workloads, a simulated fleet, and schedulers beside each other."""
