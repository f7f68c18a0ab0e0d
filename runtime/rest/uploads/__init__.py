"""Programs that clients upload to have them run: how their bytes come, what is in them, and the jobs made of them."""
