"""Pictures of digits put into words; the truth is the place of each digit."""
