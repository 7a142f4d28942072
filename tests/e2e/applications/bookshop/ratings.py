"""The ratings of a book, in stars."""

from web import serve

if __name__ == "__main__":
    serve(9080, lambda method, path, headers: (200, {"first": 5, "second": 4}))
