"""`python -m muster.cli`, for a checkout that nobody has installed."""

from muster.cli.main import main

main()
