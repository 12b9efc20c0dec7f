"""The current state of each object and how often it changed, in one SQLite file.

Events that come twice change nothing, and what a batch of events changes is written in one transaction, so that a consumer
that is killed loses nothing and counts nothing twice. `python state.py FILE` prints the objects.
"""

import json
import sqlite3
import sys

SCHEMA = """
CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY, time TEXT);
CREATE TABLE IF NOT EXISTS objects (object TEXT PRIMARY KEY, uid TEXT, version INTEGER, deleted INTEGER, changes INTEGER, last_event TEXT, omitted TEXT,
                                    data TEXT);
CREATE TABLE IF NOT EXISTS keys (key TEXT PRIMARY KEY, object TEXT);
CREATE TABLE IF NOT EXISTS gaps (id TEXT PRIMARY KEY, data TEXT);
"""


def comparable(time):
    """A time of the bridge, so that it compares as a text: it has up to nine digits after the point."""
    seconds, _, fraction = time.rstrip("Z").partition(".")
    return f"{seconds}.{fraction:0<9}Z"


class State:
    def __init__(self, path, sweep=False):
        """With sweep, the end of a resync removes the objects that no longer exist. This requires that a whole stream is read in
        its order: in a topic with several partitions, the end of a resync can overtake objects."""
        self.sweep = sweep
        self.db = sqlite3.connect(path)
        self.db.executescript(SCHEMA)

    def apply(self, batch):
        """Takes in a batch of (attributes, data, key), all or none of it, and says how many of them it knew before. The key is, on
        Kafka, the topic and the key of the record, which are one object's; without data it is a tombstone."""
        repeated = 0
        with self.db:  # one transaction
            for attributes, data, key in batch:
                kind = attributes.get("type", "")
                if data is None:
                    self.apply_tombstone(key)
                elif kind.startswith("dev.deltabridge.object."):
                    repeated += self.apply_object(attributes, data, key)
                elif kind == "dev.deltabridge.gap":
                    self.apply_gap(attributes, data)
                elif kind == "dev.deltabridge.synced":
                    self.apply_synced(attributes, data)
                # all else is of a later version
        return repeated

    def apply_object(self, a, data, key):
        name, uid = a["source"] + "/" + a["subject"], a["uid"]
        event = a["source"] + "/" + a["id"]  # an id is unique within one cluster
        # The resourceVersions of one resource compare as numbers.
        version, time = int(a["resourceversion"]), comparable(a["time"])
        self.db.execute("INSERT OR IGNORE INTO objects VALUES (?, '', 0, 0, 0, '', NULL, NULL)", (name,))
        self.db.execute("UPDATE objects SET last_event = max(last_event, ?) WHERE object = ?", (time, name))
        if key is not None:
            self.db.execute("INSERT OR REPLACE INTO keys VALUES (?, ?)", (key, name))
        # What is not older than what is known. The version of a leave can be the known one, if the filter changed and not the
        # object. And a deletion that was not seen has that of the last state that the bridge remembers, but it is final all
        # the same. Deleted objects stay, without data, so that late repetitions of their states are recognized.
        deleted = a["type"].endswith(".deleted")
        unseen = a.get("finalstateunknown") == "true"
        omitted = a.get("dataomitted")  # why the data is the object's metadata alone
        self.db.execute(
            "UPDATE objects SET uid = ?, version = ?, deleted = ?, omitted = ?, data = ? WHERE object = ? AND (version <= ? OR (? AND uid = ?))",
            (uid, version, deleted, omitted, None if deleted else data.decode(), name, version, unseen, uid),
        )
        if self.db.execute("SELECT 1 FROM events WHERE id = ?", (event,)).fetchone():
            return True
        if a["type"] != "dev.deltabridge.object.restated":  # which is not a change, but a state that may have been missed
            # A consumer that runs for long removes ids that are older than any repetition can be: a day is plenty.
            self.db.execute("INSERT INTO events VALUES (?, ?)", (event, time))
            self.db.execute("UPDATE objects SET changes = changes + 1 WHERE object = ?", (name,))
        return False

    def apply_tombstone(self, key):
        """Mostly the deletion came before it, but compaction can have removed that."""
        self.db.execute(
            "UPDATE objects SET deleted = 1, omitted = NULL, data = NULL WHERE NOT deleted AND object = (SELECT object FROM keys WHERE key = ?)",
            (key,),
        )

    def apply_gap(self, a, data):
        # The current state is right after a gap whose reason is relist, and to be restated after others. An audit trail has
        # a hole either way.
        if self.db.execute("INSERT OR IGNORE INTO gaps VALUES (?, ?)", (a["source"] + "/" + a["id"], data.decode())).rowcount:
            print("gap:", data.decode(), flush=True)

    def apply_synced(self, a, data):
        """An initial list or a resync ended: every object of the resource has had an event since it began. All others are gone, and
        its deletion was missed."""
        print("synced:", data.decode(), flush=True)
        info = json.loads(data)
        if not info.get("resync") or not self.sweep:
            return
        prefix = a["source"] + "/" + a["subject"] + "/"
        gone = "substr(object, 1, ?) = ? AND NOT deleted AND last_event < ?"
        values = (len(prefix), prefix, comparable(info["since"]))
        for (name,) in self.db.execute(f"SELECT object FROM objects WHERE {gone}", values):
            print("gone:", name, flush=True)
        self.db.execute(f"UPDATE objects SET deleted = 1, omitted = NULL, data = NULL WHERE {gone}", values)

    def print(self):
        for name, uid, version, deleted, changes, last_event, omitted, data in self.db.execute("SELECT * FROM objects ORDER BY object"):
            line = {"object": name, "uid": uid, "resourceVersion": version, "deleted": bool(deleted), "changes": changes, "lastEvent": last_event}
            if omitted is not None:
                line["omitted"] = omitted
            if data is not None:
                line["data"] = json.loads(data)
            print(json.dumps(line))


if __name__ == "__main__":
    State(sys.argv[1]).print()
