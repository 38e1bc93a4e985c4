"""What a campaign asks of a machine, from the model's configuration alone: memory, tokens, arithmetic."""
