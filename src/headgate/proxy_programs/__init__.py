"""nginx and HAProxy as programs on this machine, and the files of the rendered configurations that they run with."""
