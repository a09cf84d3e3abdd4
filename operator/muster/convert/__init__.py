"""Makes TrainingJobs from PyTorchJobs, TrainJobs, JobSets and sbatch scripts, and reports what became of each field or
option. Pure: from objects and texts to objects."""
