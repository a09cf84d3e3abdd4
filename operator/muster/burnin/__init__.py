"""Drives the burn-in of a gang's nodes before the start: which tests are due, and what they have shown."""
