"""What the cluster knows about itself: topics, their settings, producer ids. One contract, several stores."""
