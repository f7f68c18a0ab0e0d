"""Authentication and authorization of requests: sign-in, roles, limits and the audit log."""
