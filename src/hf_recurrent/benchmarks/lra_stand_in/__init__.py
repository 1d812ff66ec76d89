"""Real data that is at hand offline, for trials of models that are meant for Long Range Arena."""
