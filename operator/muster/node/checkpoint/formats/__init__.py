"""The formats that are known, each in a module of its own; `table.py` has them in the order in which they are asked."""
