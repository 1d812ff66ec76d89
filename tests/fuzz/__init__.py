"""Campaigns with malformed inputs and random models, and the verdict on what they are answered."""
