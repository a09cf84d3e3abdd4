"""What the command line and the page show, worked out once. No terminal and no browser is known here."""
