"""Count where a job's time went: a pure fold over the commits of its Gang, and the figures that are published from
it."""
