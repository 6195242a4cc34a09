"""What a viewer of records is told, whoever carries it: a server, a notebook's channel, a page that holds it.

Pure functions from records to JSON values and named arrays; they know nothing of requests.
"""
