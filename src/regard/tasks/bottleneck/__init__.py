"""Several dates through one vector, and with attention; the truth is which models can."""
