"""What launchers and the coordinator say to each other.

Standard library only and Python >= 3.8, because one end runs inside the user's container.
"""
