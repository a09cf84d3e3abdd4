"""What is decided about nodes, before and after a change of the code that decides: recorded as JSON of API objects and
plain values, and compared. Nothing in a recording names a class of the operator."""
