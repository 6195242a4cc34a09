"""Questions about short stories; the truth is the sentence that supports the answer."""
