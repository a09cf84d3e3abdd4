"""What went wrong, whose doing it was, and the shortest way back to training. Pure."""
