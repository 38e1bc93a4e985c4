"""A chat model of one's own: dialogues of the worlds, a tokenizer of them, and a model trained on them from scratch."""
