"""Commands inside the sandbox: shells, processes, terminals, standard input."""
