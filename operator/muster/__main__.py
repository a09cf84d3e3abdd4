"""`python -m muster` runs the operator."""

from muster.controller.main import main

main()
