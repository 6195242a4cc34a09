"""The tasks on an input of one's own: what a trained model answers, and where its attention was."""
