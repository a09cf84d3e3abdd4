"""Serve the page: jobs, queue and fleet in a browser, read-only, in its own process, within each user's Kubernetes
rights."""
