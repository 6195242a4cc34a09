"""The standing sweep: every model type that makes attention, watched, and compared with an oracle of its own."""
