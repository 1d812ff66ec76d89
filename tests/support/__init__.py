"""Helpers of several test files: tiny models of every architecture, batches, comparisons."""
