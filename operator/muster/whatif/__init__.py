"""What a gang would get done: failures at given rates against the recovery that is shipped, in simulated time. Pure."""
