"""The present state of each object and how often it changed, in one SQLite file.

Events that come twice change nothing, and what a batch of events changes is written in one transaction, so that a consumer
that is killed loses nothing and counts nothing twice. `python state.py FILE` prints the objects.
"""

import json
import sqlite3
import sys

SCHEMA = """
CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, time TEXT);
CREATE TABLE IF NOT EXISTS objects (object TEXT PRIMARY KEY, uid TEXT, version INTEGER, deleted INTEGER, changes INTEGER, told TEXT, data TEXT);
CREATE TABLE IF NOT EXISTS gaps (id TEXT PRIMARY KEY, data TEXT);
"""


def comparable(time):
    """A time of the bridge, so that it compares as a text: it has up to nine digits after the point."""
    seconds, _, fraction = time.rstrip("Z").partition(".")
    return f"{seconds}.{fraction:0<9}Z"


class State:
    def __init__(self, path):
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)

    def apply(self, batch):
        """Takes in a batch of (attributes, data), all or none of it, and says how many of them it knew before."""
        repeated = 0
        with self.db:  # one transaction
            for attributes, data in batch:
                kind = attributes["type"]
                if kind.startswith("dev.deltabridge.object."):
                    repeated += self.apply_object(attributes, data)
                elif kind == "dev.deltabridge.gap":
                    self.apply_gap(attributes, data)
                elif kind == "dev.deltabridge.synced":
                    print("synced:", data.decode(), flush=True)
                # all else is of a later version
        return repeated

    def apply_object(self, a, data):
        name, uid = a["source"] + "/" + a["subject"], a["uid"]
        # The resourceVersions of one resource compare as numbers.
        version, time = int(a["resourceversion"]), comparable(a["time"])
        self.db.execute("INSERT OR IGNORE INTO objects VALUES (?, '', 0, 0, 0, '', NULL)", (name,))
        self.db.execute("UPDATE objects SET told = max(told, ?) WHERE object = ?", (time, name))
        # A consumer that runs for long removes ids that are older than any repetition can be: a day is plenty.
        if self.db.execute("INSERT OR IGNORE INTO events VALUES (?, ?)", (a["id"], time)).rowcount == 0:
            return True
        self.db.execute("UPDATE objects SET changes = changes + 1 WHERE object = ?", (name,))
        # A deletion that was not seen has the version of the last state that the bridge remembers, but it is final all the
        # same. Deleted objects stay, without data, so that late repetitions of their states are recognized.
        unseen = a.get("finalstateunknown") == "true"
        deleted = a["type"].endswith(".deleted")
        self.db.execute(
            "UPDATE objects SET uid = ?, version = ?, deleted = ?, data = ? WHERE object = ? AND (version < ? OR (? AND uid = ?))",
            (uid, version, deleted, None if deleted else data.decode(), name, version, unseen, uid),
        )
        return False

    def apply_gap(self, a, data):
        # The present state is right after a gap whose reason is relist, and to be restated after others. An audit trail has
        # a hole either way.
        if self.db.execute("INSERT OR IGNORE INTO gaps VALUES (?, ?)", (a["id"], data.decode())).rowcount:
            print("gap:", data.decode(), flush=True)

    def print(self):
        for name, uid, version, deleted, changes, told, data in self.db.execute("SELECT * FROM objects ORDER BY object"):
            line = {"object": name, "uid": uid, "resourceVersion": version, "deleted": bool(deleted), "changes": changes, "told": told}
            if data is not None:
                line["data"] = json.loads(data)
            print(json.dumps(line))


if __name__ == "__main__":
    State(sys.argv[1]).print()
