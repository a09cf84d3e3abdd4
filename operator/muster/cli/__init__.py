"""`kubectl muster`: the command line for the fleet and for jobs."""
