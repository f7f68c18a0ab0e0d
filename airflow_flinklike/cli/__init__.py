"""The command line client `flinklike`. It talks REST only, like every other client."""
