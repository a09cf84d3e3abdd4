"""Runs the test suites: `make test` (the gate) and `make test-all` (everything, part by part)."""
