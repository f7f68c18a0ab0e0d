"""The command line client `flinklike`. Like every client, it talks REST only."""
