"""Who is let in, by what he shows: tokens, certificates, keys, principals; and who may read the cluster's files."""
