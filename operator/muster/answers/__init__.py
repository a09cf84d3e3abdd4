"""Compute what the command line and the page show, once for both. It knows no terminal and no browser."""
