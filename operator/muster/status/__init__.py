"""What people read of a job: status, conditions, warnings, Events."""
