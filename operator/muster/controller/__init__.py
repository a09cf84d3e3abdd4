"""Wiring: observe through kube and coordinator, decide in the pure rooms, act through kube. Thin on purpose."""
