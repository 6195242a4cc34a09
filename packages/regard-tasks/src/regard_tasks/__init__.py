"""Trained models of Regard's tasks, a folder for each task: data alone, read by `regard.tasks.common.pretrained`."""
