"""Which nodes a gang gets: pure functions from a fleet and a request to an assignment or an explanation."""
