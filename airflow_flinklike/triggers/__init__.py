"""Triggers, which wait in the triggerer for operators and sensors."""
