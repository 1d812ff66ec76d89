"""Pathfinder: whether two markers are on the same dashed curve, among curves that lead nowhere."""
