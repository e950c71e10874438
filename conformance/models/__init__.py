"""Small independent models that say what a check is due. They share no code with the reference."""
