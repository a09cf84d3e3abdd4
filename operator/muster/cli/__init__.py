"""`kubectl muster`: what a person at a terminal asks of the fleet and of a job."""
