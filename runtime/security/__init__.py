"""Authentication: tokens, certificates, keys and principals; and the private files of the cluster."""
