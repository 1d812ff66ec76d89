"""What the scripts in `training/` are made of: recipes, schedules, a `Trainer`, and reports of finished runs."""
