"""Signs of life on streams: sent when one is silent, missed ones end it. One implementation for all stream kinds."""
