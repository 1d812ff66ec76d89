"""One command for a machine with a GPU, `python -m gpu.day`: what is right there, how fast, and what is learned."""
