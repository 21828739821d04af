"""Sandboxes: containers with a guest that answers, and how they are made and destroyed."""
