"""Which checkpoint a job resumes from, and how its program is told."""
