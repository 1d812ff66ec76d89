"""Many threads, and many processes, at once."""
