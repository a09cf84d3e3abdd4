"""The page: jobs, queue and fleet in a browser, read-only, in a process of its own; each sees what Kubernetes lets him
see."""
