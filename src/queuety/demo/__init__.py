"""The demonstration: a report over a folder of documents, with a worker killed in the middle."""
