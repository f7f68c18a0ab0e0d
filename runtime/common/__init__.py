"""Pure vocabulary of the whole system: ids, tokens, states, errors, the clock. Imports nothing of ours."""
