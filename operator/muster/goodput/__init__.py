"""Where a job's time went: a pure fold over what its Gang commits, and the figures that people are told of it."""
