"""What the AdaptiveScheduler decides by: bounds, states, and rescales. Pure."""
