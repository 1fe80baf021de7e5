"""Functions of torch that no rule sees: in a watched program they are called in another way, noted or refused."""
