"""Methods: who learns what a turn is worth (critics), and who improves the policy. One file each."""
