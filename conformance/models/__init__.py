"""Models: what must come out, computed in another way than the reference does; they share no code with it."""
