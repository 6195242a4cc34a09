"""How each task is learned: models, recipes, and the numbers of their cards. One module a task."""
