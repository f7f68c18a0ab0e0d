"""The dashboard: pages that a browser makes of what REST answers, and how a browser signs in."""
