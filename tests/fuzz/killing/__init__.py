"""What befalls a process as it writes files, and what it left."""
