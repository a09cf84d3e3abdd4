"""The checker: one process on every node that keeps torch loaded, runs the orders of a burn-in, and remembers the
node's passes."""
