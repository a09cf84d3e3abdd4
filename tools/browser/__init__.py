"""A browser without a window, for tests and screenshots of the page."""
