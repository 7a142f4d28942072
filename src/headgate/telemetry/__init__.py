"""What proxies report, as windows of counts and mergeable histograms, and the answers to questions about them."""
