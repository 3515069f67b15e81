"""The commands, and what they share: how they are asked and how they answer."""
