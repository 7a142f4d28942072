"""The details of a book."""

from web import serve

if __name__ == "__main__":
    serve(9080, lambda method, path, headers: (200, {"id": 0, "title": "A book about meshes", "pages": 200}))
