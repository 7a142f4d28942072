"""What is counted for each flow, added up over time. Pure: moments are arguments."""
