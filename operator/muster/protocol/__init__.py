"""Define the messages between launchers, checkers and the coordinator.

Standard library only and Python >= 3.8, because one end runs inside the user's container.
"""
