"""The checker: one process on every node that runs the orders of a burn-in with torch warm, and remembers its
passes."""
