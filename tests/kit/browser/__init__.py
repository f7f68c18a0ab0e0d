"""A real Chromium for tests of pages."""
