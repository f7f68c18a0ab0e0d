"""The judgement of who is silent for too long: pure."""
