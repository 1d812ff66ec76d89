"""Data of training and evaluation: files, folders and data sets of the Hub, read by `datasets`, and benchmarks."""
