"""Campaigns: cases at random against what is promised, each a program; what they are made of is in packages."""
