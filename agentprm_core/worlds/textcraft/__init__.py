"""TextCraft: craft an item from recipes that the first observation lists (ADaPT, Prasad et al. 2024)."""
