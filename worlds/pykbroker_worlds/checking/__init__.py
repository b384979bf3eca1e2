"""Claims about applications, the evidence for them, and the story of a failure."""
