"""HTML pages without scripts."""
