"""Two runs of a random model on a random batch, and whether they agree."""
