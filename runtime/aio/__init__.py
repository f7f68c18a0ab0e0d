"""asyncio kits, independent of each other: scopes of tasks, retries, mailboxes, watched values, reconcilers."""
