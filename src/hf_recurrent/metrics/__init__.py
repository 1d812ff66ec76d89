"""Numpy functions that turn predictions and ponder steps into numbers."""

from .functional import accuracy, accuracy_by_slice, majority_accuracy, spearman, step_histogram, step_summary

__all__ = ["accuracy", "accuracy_by_slice", "majority_accuracy", "spearman", "step_histogram", "step_summary"]
