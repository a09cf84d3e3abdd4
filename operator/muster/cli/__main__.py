"""`python -m muster.cli`, for a checkout without an installation."""

from muster.cli.main import main

main()
