"""What can be wrong with an object as it is written: one file for each kind or group of fields."""
