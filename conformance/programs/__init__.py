"""Programs that Hypothesis draws as values, each with the model that says what must come out."""
