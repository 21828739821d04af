"""`scripts/bench --peers`: sandboxd next to llm-sandbox, SWE-ReX and Docker itself, in one run."""
