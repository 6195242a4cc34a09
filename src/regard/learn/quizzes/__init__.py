"""Questions on attention: measured in a model, or on what a lesson says; and when to ask them again."""
