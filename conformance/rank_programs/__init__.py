"""What ranks do in checks: each function is one rank's program, called as `function(context, **arguments)`; the checks judge the values."""
