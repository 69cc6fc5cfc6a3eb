"""What runs inside a cell, next to vLLM: plain pytest cases and what they stand on."""
