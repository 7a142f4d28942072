"""The routing model as configurations of other proxies, pure (R32, D23): text and what it can't carry over."""
