"""The node agent: looks at GPUs, kernel log, InfiniBand and disks, and tells what stands against the node."""
