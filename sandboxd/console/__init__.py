"""The web console: a listener that serves its pages and carries their calls into the API."""
