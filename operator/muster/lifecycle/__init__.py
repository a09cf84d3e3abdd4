"""One job's life: a pure step from what is seen to what is to be done."""
