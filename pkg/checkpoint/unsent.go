package checkpoint

import (
	"iter"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Unsent is a part of the changes that the file has and the log does not have.
type Unsent struct {
	// Pairs are the changes. The log must have all of them in one commit.
	Pairs []statelog.Pair
	// Bytes is the approximate size of Pairs.
	Bytes int
	// Last means that Pairs are all changes. Without Last, they are new events, which do not count before the log has the
	// rest.
	Last bool

	markers []string // what Pairs consists of
}

// sending is what the store knows about the part that Unsent has returned last.
type sending struct {
	changed map[string]bool // markers that were set since then
	next    string          // marker at which the next part begins; empty if it begins with the first one
}

// markerOf returns the key in bucketUnsent of a value that was changed. With an empty key, it means that all values of
// the source were removed, except those that have markers of their own.
func markerOf(p statelog.Pair) string { return p.Bucket + "\x00" + p.Source + "\x00" + p.Key }

// mark notes which values the log does not have.
func (t *transaction) mark(pairs []statelog.Pair) error {
	unsent, err := t.CreateBucketIfNotExists([]byte(bucketUnsent))
	if err != nil {
		return err
	}
	for _, p := range pairs {
		marker := markerOf(p)
		if p.Key == "" && p.Value == nil {
			if err := removeMarkers(unsent, marker); err != nil {
				return err
			}
		}
		if err := unsent.Put([]byte(marker), nil); err != nil {
			return err
		}
		if t.store.sending.changed != nil {
			t.store.sending.changed[marker] = true
		}
	}
	return nil
}

// removeMarkers removes all markers with a prefix.
func removeMarkers(unsent *bbolt.Bucket, prefix string) error {
	var all []string
	for marker := range markersFrom(unsent, prefix, prefix) {
		all = append(all, marker)
	}
	for _, marker := range all {
		if err := unsent.Delete([]byte(marker)); err != nil {
			return err
		}
	}
	return nil
}

// Unsent returns the next changes that the log does not have: first, new events in parts of about maxBytes, then
// everything else at once. When the log has the part, call Sent. If the log does not receive it, Unsent can be called
// again. Call it in a function that Exclusively calls.
func (s *Store) Unsent(maxBytes int) (*Unsent, error) {
	u := &Unsent{}
	err := s.view(func(tx *bbolt.Tx) error {
		from := s.sending.next
		s.sending = sending{changed: map[string]bool{}}
		if from != "" {
			s.sending.next = u.addEvents(s, tx, from, maxBytes)
		}
		if len(u.markers) > 0 {
			return nil
		}
		if s.sending.next = u.addEvents(s, tx, bucketEvents+"\x00", maxBytes); s.sending.next == "" {
			u.addAll(s, tx)
		}
		return nil
	})
	return u, boltfile.Explain("read the checkpoint", s.path, err)
}

// addEvents adds new events from a marker on. It returns the last marker if there may be more of them.
func (u *Unsent) addEvents(s *Store, tx *bbolt.Tx, from string, maxBytes int) (next string) {
	c, in := chunk{Store: s, tx: tx, left: maxBytes}, ""
	for marker := range markersFrom(tx.Bucket([]byte(bucketUnsent)), bucketEvents+"\x00", from) {
		p := valueAt(tx, marker)
		isRemoval := p.Value == nil && p.Key != ""
		if isRemoval || p.Key == keyEvents {
			continue // removed events must not be missing while the record in the log counts them
		}
		u.markers = append(u.markers, marker)
		if c.addChange(p); p.Source != in && strings.HasPrefix(p.Source, spillOf("")) {
			c.addChange(partOf(p, seal(keyIncomplete, make([]byte, sealSize))))
		}
		in = p.Source
		if c.left <= 0 {
			next = marker
			break
		}
	}
	u.Pairs, u.Bytes = c.pairs, maxBytes-c.left
	return next
}

// addAll adds everything.
func (u *Unsent) addAll(s *Store, tx *bbolt.Tx) {
	c := chunk{Store: s, tx: tx}
	u.Last, u.markers = true, nil
	for marker := range markersFrom(tx.Bucket([]byte(bucketUnsent)), "", "") {
		u.markers = append(u.markers, marker)
		p := valueAt(tx, marker)
		if c.addChange(p); p.Bucket == bucketEvents && p.Key == keyEvents {
			c.addChange(partOf(p, nil))
		}
	}
	u.Pairs, u.Bytes = c.pairs, -c.left
}

// partOf returns the pair that notes in the log, or no longer notes, that events do not count.
func partOf(of statelog.Pair, value []byte) statelog.Pair {
	of.Key, of.Value = keyIncomplete, value
	return of
}

// addChange adds a pair, which may be a removal.
func (c *chunk) addChange(p statelog.Pair) {
	if p.Value != nil {
		c.add(p, "")
		return
	}
	c.pairs = append(c.pairs, p)
	c.left -= len(p.Key)
}

// Sent notes that the log has a part of the changes, and that at is the point of its last commit. The part may be nil.
// The values that have changed since Unsent has returned the part remain unsent. If none are left, Unsent of the point
// is empty from then on. Call it in a function that Exclusively calls.
func (s *Store) Sent(u *Unsent, at statelog.Point) error {
	err := s.update(nil, func(t *transaction) error {
		t.record.Point, t.record.Point.Unsent = at, s.record.Point.Unsent
		if unsent := t.Bucket([]byte(bucketUnsent)); u != nil && unsent != nil {
			for _, marker := range u.markers {
				if s.sending.changed[marker] {
					continue
				}
				if err := unsent.Delete([]byte(marker)); err != nil {
					return err
				}
			}
			if first, _ := unsent.Cursor().First(); first == nil {
				t.record.Point.Unsent = ""
				if err := t.DeleteBucket([]byte(bucketUnsent)); err != nil {
					return err
				}
			}
		}
		return t.putPoint()
	})
	if err == nil {
		s.sending.changed = nil
	}
	return err
}

// markersFrom returns the markers with a prefix, in order, beginning with from.
func markersFrom(unsent *bbolt.Bucket, prefix, from string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if unsent == nil {
			return
		}
		cursor := unsent.Cursor()
		for key, _ := cursor.Seek([]byte(from)); key != nil; key, _ = cursor.Next() {
			if marker := string(key); !strings.HasPrefix(marker, prefix) || !yield(marker) {
				return
			}
		}
	}
}

// valueAt returns the value to which a marker belongs. Its Value is nil if it was removed.
func valueAt(tx *bbolt.Tx, marker string) (p statelog.Pair) {
	fields := strings.SplitN(marker, "\x00", 3)
	p.Bucket, p.Source, p.Key = fields[0], fields[1], fields[2]
	from := tx.Bucket([]byte(p.Bucket))
	if from != nil && p.Source != "" {
		from = from.Bucket([]byte(p.Source))
	}
	if from != nil && p.Key != "" {
		p.Value = from.Get([]byte(p.Key))
	}
	return p
}
