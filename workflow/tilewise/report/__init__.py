"""What the results mean: tables, figures, claims and the page."""
