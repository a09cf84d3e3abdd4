"""What the demo, the end-to-end tests and the benchmarks share: a cluster, Muster installed in it, jobs, faults,
clocks."""
