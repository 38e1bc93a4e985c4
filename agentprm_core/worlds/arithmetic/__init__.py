"""Arithmetic: word problems solved a step at a time. The policy chooses what to compute, the world does it."""
