"""`muster-run`: starts, watches and ends the ranks inside the user's container.

It reports what it does to the coordinator and converges to the directive that comes back. Standard library only and
Python >= 3.8, because it runs on the Python of the user's image.
"""
