"""How the suite runs: its pace, its short and full forms, its figures."""
