"""What frameworks leave of a save that was cut short, judged by the scanner and loaded by the frameworks themselves."""
