"""TaskManagers of one job: what they report and are sent, and what their loss or death ends."""
