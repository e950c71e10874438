"""Models: what must come out, computed in another way than the reference does."""
