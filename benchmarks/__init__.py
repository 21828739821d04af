"""sandboxd measured next to its alternatives, in one run: `./scripts/bench`."""
