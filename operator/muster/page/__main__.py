"""`python -m muster.page` runs the page."""

from muster.page.main import main

main()
