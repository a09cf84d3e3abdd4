"""Muster: a Kubernetes operator for health-aware training jobs."""

__version__ = "0.2.0-rc1"
