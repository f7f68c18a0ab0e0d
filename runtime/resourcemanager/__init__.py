"""The ResourceManager: which slots there are, who needs them, and which job gets which."""
