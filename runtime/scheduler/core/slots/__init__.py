"""Slots of one job: how many it needs, which attempt goes into which, and what is sent there."""
