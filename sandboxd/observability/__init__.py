"""Records of sessions and commands: journal, history, statistics, metrics and traces."""
