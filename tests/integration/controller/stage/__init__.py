"""What surrounds the operator in these tests: nodes that are only objects, a hand that plays scheduler and kubelet,
scripted launchers that speak the real protocol, and operator processes that can be killed at any write.
"""
