"""Who asks, and what they may do: sign-in, roles, limits and the audit log."""
