"""Order, limits and explanations of jobs that wait for nodes: pure functions."""
