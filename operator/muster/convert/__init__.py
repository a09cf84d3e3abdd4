"""Makes TrainingJobs of PyTorchJobs, TrainJobs and JobSets, and says what became of each field. Pure: from objects to
objects."""
