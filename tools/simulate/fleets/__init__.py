"""Fleets over a month: the shipped rules of health alone, the shipped agent's loop on machines of which only the
simulator knows the truth."""
