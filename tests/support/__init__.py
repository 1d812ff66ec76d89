"""What several test files share: tiny models of every family, batches, comparisons."""
