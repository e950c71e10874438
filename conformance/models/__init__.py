<<<<<<< HEAD
"""Models: what must come out, computed in another way than the reference does."""
=======
"""Small independent models that say what a check is due. They share no code with the reference."""
>>>>>>> main
