"""How many hosts, calls and dollars a number of sessions takes: a simulation with measured costs.

`python -m benchmarks.growth` prints the tables of docs/scale.md; `--write docs/scale.md` puts them
there.
"""
