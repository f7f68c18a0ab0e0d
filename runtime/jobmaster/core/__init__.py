"""Pure decisions of a process that runs JobMasters."""
