"""The node agent: it monitors GPUs, kernel log, InfiniBand and disks, and reports the evidence against the node."""
