"""What a semantic cache answers, and how often it is wrong: on public questions, and on questions that are made up."""
