"""Recorded cases of the reference implementations, and the replay of their inputs."""
