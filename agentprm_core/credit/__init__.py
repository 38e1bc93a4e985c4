"""What a turn was worth: targets for process reward models from episodes, one estimator a file."""
