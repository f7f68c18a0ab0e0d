"""What all jobs of the team know about labels."""

def cleaned(label: str) -> str:
    return label.strip().upper()
