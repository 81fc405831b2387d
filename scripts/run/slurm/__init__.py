"""SCHEDULER=slurm: the cases of a command as tasks of sbatch arrays. Each task runs the kit's own runner within its allocation."""
