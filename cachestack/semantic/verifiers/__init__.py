"""What decides where similarity and guards leave doubt."""
