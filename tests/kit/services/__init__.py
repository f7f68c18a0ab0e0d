"""Services of others: identity providers, token services, certificate authorities."""
