"""What public arguments must be, and which of torch's transforms a call runs below."""
