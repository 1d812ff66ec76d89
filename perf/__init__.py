"""Speed, counted work and memory, as ratios measured side by side: `python -m perf`."""
