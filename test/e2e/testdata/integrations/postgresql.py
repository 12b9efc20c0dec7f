"""Runs statements of PostgreSQL, one JSON string each, and prints the rows of those that have rows."""

import json
import sys

import psycopg

with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    for statement in json.load(sys.stdin):
        cursor = connection.execute(statement)
        if cursor.description:
            print(json.dumps(cursor.fetchall()))
