"""`make chaos`: a campaign of faults against whole runs of the kit, with an oracle after each."""
