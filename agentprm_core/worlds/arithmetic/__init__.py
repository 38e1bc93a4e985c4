"""Arithmetic: word problems solved a step at a time. The policy chooses numbers and operations, the world calculates."""
