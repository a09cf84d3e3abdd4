"""Names of the namespaces that code of several rooms knows."""

SYSTEM = "muster-system"
CHECKERS = "muster-check"
NODE_LEASES = "kube-node-lease"
"""That of the kubelets' heartbeats."""
