"""A simulator: one seed is one life of a fleet, in which everything that can go wrong does.

What is shipped runs here as it is: the operator with its watches, queue, health and decisions, and the launchers. What
it stands on is simulated: clocks, the API server, the network, machines and their kubelets, storage, and people.
"""
