"""All worlds that generate their games, in equal shares."""
