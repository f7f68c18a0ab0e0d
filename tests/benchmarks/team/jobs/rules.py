def cleaned(label: str) -> str:
    return label.strip().upper()
