"""Makes TrainingJobs from PyTorchJobs, TrainJobs and JobSets, and reports what became of each field. Pure: from objects
to objects."""
