// Package state is what the example consumers make of the events: the current state of each object and how often it
// changed, in one file. Events that come twice change nothing, and what a batch of events changes is written in one
// transaction, so that a consumer that is killed loses nothing and counts nothing twice.
package state

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Event is one CloudEvent of the bridge, with the attributes that matter here.
type Event struct {
	ID, Type, UID     string
	Object            string    // names the object: its cluster, resource, namespace and name
	Version           uint64    // the resourceVersion
	Time              time.Time // when the bridge saw it
	Deleted           bool      // or left the filter
	FinalStateUnknown bool
	Omitted           string // why Data is the object's metadata alone; empty: it is all of it
	Data              []byte
	Key               string // on Kafka the topic and the key of the record, which are one object's
}

// Tombstone is the event that a record of Kafka without a value stands for: what has its key is gone.
func Tombstone(key string) Event { return Event{Type: tombstone, Key: key} }

// New makes an event of its attributes, as the headers have them, and its data.
func New(attributes map[string]string, data []byte) (Event, error) {
	e := Event{
		// An id is unique within one cluster.
		ID:                attributes["source"] + "/" + attributes["id"],
		Type:              attributes["type"],
		UID:               attributes["uid"],
		Object:            attributes["source"] + "/" + attributes["subject"],
		FinalStateUnknown: attributes["finalstateunknown"] == "true",
		Omitted:           attributes["dataomitted"],
		Data:              data,
	}
	e.Deleted = e.Type == objectTypes+"deleted"
	var err error
	if attributes["id"] == "" || e.Type == "" {
		return e, fmt.Errorf("this is not an event: it has the attributes %v", attributes)
	}
	if e.Time, err = time.Parse(time.RFC3339Nano, attributes["time"]); err != nil {
		return e, fmt.Errorf("event %s: %w", e.ID, err)
	}
	if version := attributes["resourceversion"]; version != "" { // a gap may have none
		if e.Version, err = strconv.ParseUint(version, 10, 64); err != nil {
			return e, fmt.Errorf("event %s: %w", e.ID, err)
		}
	}
	return e, nil
}

// Object is what is known of one object. Those that were deleted stay, without data, so that late repetitions of their
// states are recognized.
type Object struct {
	Object    string          `json:"object"`
	UID       string          `json:"uid"`
	Version   uint64          `json:"resourceVersion"`
	Deleted   bool            `json:"deleted"`
	Changes   int             `json:"changes"`   // how many events there were about it: each counts once
	LastEvent time.Time       `json:"lastEvent"` // time of the last event about the object
	Omitted   string          `json:"omitted,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
}

// Store is the file. It is safe for concurrent use.
type Store struct {
	// Sweep removes objects that, as the end of a resync shows, no longer exist. Set it only if the stream is read as a
	// whole and in order: in a topic with several partitions, the end of the resync can overtake objects.
	Sweep bool

	db *bolt.DB
}

const (
	objectTypes = "dev.deltabridge.object."
	restated    = objectTypes + "restated"
	tombstone   = "tombstone" // no type of the bridge
)

// bucket of the file: events by id, objects by name, gaps by id, names of objects by the keys of their records.
type bucket string

func (b bucket) of(tx *bolt.Tx) *bolt.Bucket { return tx.Bucket([]byte(b)) }

const (
	events  bucket = "events"
	objects bucket = "objects"
	gaps    bucket = "gaps"
	keys    bucket = "keys"
)

// Open opens the file, or makes it. It waits for another process that has it open.
func Open(path string) (*Store, error) {
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, b := range []bucket{events, objects, gaps, keys} {
			if _, err := tx.CreateBucketIfNotExists([]byte(b)); err != nil {
				return err
			}
		}
		return nil
	})
	return &Store{db: db}, err
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Apply applies a batch of events, all of them or none, and returns how many of them were repetitions. It calls say
// with messages for people.
func (s *Store) Apply(batch []Event, say func(text string)) (repeated int, err error) {
	err = s.db.Update(func(tx *bolt.Tx) error {
		for _, e := range batch {
			var again bool
			var err error
			switch {
			case strings.HasPrefix(e.Type, objectTypes):
				if again, err = applyObject(tx, e); again {
					repeated++
				}
			case e.Type == tombstone:
				err = applyTombstone(tx, e)
			case e.Type == "dev.deltabridge.gap":
				err = applyGap(tx, e, say)
			case e.Type == "dev.deltabridge.synced":
				err = s.applySynced(tx, e, say)
			default: // of a later version
			}
			if err != nil {
				return fmt.Errorf("event %s: %w", e.ID, err)
			}
		}
		return nil
	})
	return repeated, err
}

func applyObject(tx *bolt.Tx, e Event) (repeated bool, err error) {
	known, err := get(tx, []byte(e.Object))
	if err != nil {
		return false, err
	}
	if e.Time.After(known.LastEvent) {
		known.LastEvent = e.Time
	}
	if current(known, e) {
		known.UID, known.Version, known.Deleted, known.Omitted, known.Data = e.UID, e.Version, e.Deleted, e.Omitted, e.Data
		if e.Deleted {
			known.Data = nil
		}
	}
	repeated = events.of(tx).Get([]byte(e.ID)) != nil
	if !repeated && e.Type != restated { // which is not a change, but a state that may have been missed
		known.Changes++
		// A consumer that runs for long removes ids that are older than any repetition can be: a day is plenty.
		if err := events.of(tx).Put([]byte(e.ID), []byte(e.Time.Format(time.RFC3339Nano))); err != nil {
			return false, err
		}
	}
	if e.Key != "" {
		if err := keys.of(tx).Put([]byte(e.Key), []byte(e.Object)); err != nil {
			return false, err
		}
	}
	return repeated, put(tx, known)
}

// current reports whether an event is not older than what is known. The resourceVersions of one resource compare as
// numbers. If only the filter changed, a leave has the known resourceVersion. A deletion that the bridge did not see
// has the resourceVersion of the last known state, and counts as newer.
func current(known Object, e Event) bool {
	return e.Version >= known.Version || e.FinalStateUnknown && e.UID == known.UID
}

// applyTombstone: mostly the deletion came before it, but compaction can have removed that.
func applyTombstone(tx *bolt.Tx, e Event) error {
	name := keys.of(tx).Get([]byte(e.Key))
	if name == nil {
		return nil
	}
	known, err := get(tx, name)
	if err != nil || known.Deleted {
		return err
	}
	known.Deleted, known.Omitted, known.Data = true, "", nil
	return put(tx, known)
}

func get(tx *bolt.Tx, name []byte) (Object, error) {
	o := Object{Object: string(name)}
	text := objects.of(tx).Get(name)
	if text == nil {
		return o, nil
	}
	return o, json.Unmarshal(text, &o)
}

func put(tx *bolt.Tx, o Object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return objects.of(tx).Put([]byte(o.Object), text)
}

// applyGap notes where events may be missing.
func applyGap(tx *bolt.Tx, e Event, say func(text string)) error {
	if gaps.of(tx).Get([]byte(e.ID)) != nil {
		return nil
	}
	// The current state is right after a gap whose reason is relist, and to be restated after others. An audit trail has a
	// hole either way.
	say("gap: " + string(e.Data))
	return gaps.of(tx).Put([]byte(e.ID), e.Data)
}

// applySynced handles the end of an initial list or of a resync: every object of the resource has had an event since it
// began. All other objects no longer exist, and their deletions were missed.
func (s *Store) applySynced(tx *bolt.Tx, e Event, say func(text string)) error {
	say("synced: " + string(e.Data))
	var info struct {
		Resync bool
		Since  time.Time
	}
	if err := json.Unmarshal(e.Data, &info); err != nil || !info.Resync || !s.Sweep {
		return err
	}
	var gone []Object
	prefix := []byte(e.Object + "/")
	cursor := objects.of(tx).Cursor()
	for name, text := cursor.Seek(prefix); bytes.HasPrefix(name, prefix); name, text = cursor.Next() {
		var o Object
		if err := json.Unmarshal(text, &o); err != nil {
			return err
		}
		if !o.Deleted && o.LastEvent.Before(info.Since) {
			gone = append(gone, o)
		}
	}
	for _, o := range gone {
		say("gone: " + o.Object)
		o.Deleted, o.Omitted, o.Data = true, "", nil
		if err := put(tx, o); err != nil {
			return err
		}
	}
	return nil
}

// Print writes each object as a line of JSON, in the order of their names.
func (s *Store) Print(w io.Writer) error {
	return s.db.View(func(tx *bolt.Tx) error {
		return objects.of(tx).ForEach(func(_, line []byte) error {
			_, err := fmt.Fprintf(w, "%s\n", line)
			return err
		})
	})
}
