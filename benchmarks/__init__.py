"""sandboxd beside what it competes with, measured in one run: `./scripts/bench`."""
