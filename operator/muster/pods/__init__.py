"""What makes the pods of a gang: the manifest, the command with its launcher, what a worker asks of a node."""
