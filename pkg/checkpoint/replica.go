package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/statelog"
)

// replica is a Store as a copy of a state log.
type replica struct{ *Store }

var _ statelog.Source = replica{}

// Copy returns the store as a copy of a state log. Its methods can be called concurrently with methods that read, but
// not with other methods that change the file. Call them only before TakeOver, in methods of Log, and in functions that
// Exclusively calls.
//
// Apply returns an error that wraps statelog.ErrDamaged, and changes nothing, if a pair does not match its checksum or
// cannot be part of a checkpoint. Next returns the store record, then, source by source, the record and the rows in key
// order, and at last the events of all sinks. It leaves out values that do not match their checksums, so that Load
// reports the damage in each copy. Of a parked event, only the content is left out, so that each copy reports its loss.
func (s *Store) Copy() statelog.Source { return replica{s} }

// Exclusively calls a function while no transaction runs.
func (s *Store) Exclusively(call func() error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return call()
}

// Point implements statelog.Copy.
func (r replica) Point() statelog.Point { return r.noted().Point }

// Apply implements statelog.Copy.
func (r replica) Apply(pairs []statelog.Pair, at statelog.Point) error {
	privacy := r.record.Privacy
	err := r.update(nil, func(t *transaction) (err error) {
		for _, p := range pairs {
			if err := checkPair(p); err != nil {
				return err
			}
			if err := t.set(p); err != nil {
				return err
			}
			t.store.release(t.Tx, pageSize)
		}
		if t.record, err = getRecord(t.Tx); err != nil {
			return err
		}
		t.record.Point = at
		return t.putPoint()
	})
	if err != nil || r.record.Privacy == privacy {
		return err
	}
	if err = r.prepareCopy(); err == nil { // free pages contain rows that are now redacted
		err = r.install(r.record)
	}
	return boltfile.Explain("compact the checkpoint", r.path, err)
}

// checkPair returns an error if a pair cannot be part of a checkpoint.
func checkPair(p statelog.Pair) error {
	valid := false
	switch p.Bucket {
	case bucketStore:
		valid = p.Source == "" && p.Key == keyStore && p.Value != nil
	case bucketSources:
		valid = p.Source == "" && p.Key != ""
	case bucketRows, bucketEvents:
		valid = p.Source != "" && (p.Key != "" || p.Value == nil)
	}
	if !valid {
		return fmt.Errorf("%w: unexpected pair %q, %q, %q", statelog.ErrDamaged, p.Bucket, p.Source, p.Key)
	}
	if p.Value == nil {
		return nil
	}
	if _, err := unseal(p.Key, p.Value); err != nil {
		return fmt.Errorf("%w: bucket %q, source %q: %q does not match its checksum", statelog.ErrDamaged, p.Bucket,
			p.Source, p.Key)
	}
	return nil
}

// Reset implements statelog.Copy.
func (r replica) Reset() error {
	record := r.noted()
	if record.Installation != "" && record.Point.Number == 0 {
		return statelog.ErrDiverged
	}
	if record.Point.Unsent != "" {
		r.logger.Warn("discarding changes that state.log has not received, because its content is used instead; they are "+
			"read again, as far as the API server still has them", "path", r.path)
	}
	err := r.replace(r.emptyRecord(""), nil, r.install)
	return boltfile.Explain("empty the checkpoint", r.path, err)
}

// Next implements statelog.Source. A cursor consists of a source, a zero byte, and the key of the last row that was
// returned. The key is empty if only the record of the source was returned. The cursor of an event begins with a zero
// byte, followed by the name of its bucket, a zero byte, and its key.
func (r replica) Next(cursor string, maxBytes int) (pairs []statelog.Pair, next string, done bool, err error) {
	err = r.view(func(tx *bbolt.Tx) error {
		c := chunk{Store: r.Store, tx: tx, left: maxBytes}
		if done, err = c.fill(cursor); err == nil {
			pairs, next = c.pairs, c.next
		}
		return err
	})
	return pairs, next, done, boltfile.Explain("read the checkpoint", r.path, err)
}

// chunk is the result of one call of Next.
type chunk struct {
	*Store
	tx    *bbolt.Tx
	pairs []statelog.Pair
	left  int // remaining bytes
	next  string
}

// fill adds the pairs after a cursor. It returns true if no pairs are left.
func (c *chunk) fill(cursor string) (done bool, err error) {
	if cursor == "" {
		value, err := sealJSON(keyStore, c.record)
		if err != nil {
			return false, err
		}
		c.add(statelog.Pair{Bucket: bucketStore, Key: keyStore, Value: value}, "")
	}
	if after, ok := strings.CutPrefix(cursor, "\x00"); ok {
		return c.fillEvents(after), nil
	}
	source, after, _ := strings.Cut(cursor, "\x00")
	at, found := slices.BinarySearch(c.record.Sources, source)
	for _, name := range c.record.Sources[at:] {
		if !found || name != source {
			after = ""
			value := c.tx.Bucket([]byte(bucketSources)).Get([]byte(name))
			if c.add(statelog.Pair{Bucket: bucketSources, Key: name, Value: value}, name+"\x00") {
				return false, nil
			}
		}
		if c.record.Privacy != c.opts.Privacy.Name { // the rows may contain data that must not leave this process
			return false, errors.New("the rows were not redacted, because TakeOver was not called")
		}
		for key, row := range valuesAfter(c.tx, bucketRows, name, after) {
			p := statelog.Pair{Bucket: bucketRows, Source: name, Key: key, Value: row}
			if c.add(p, name+"\x00"+key) {
				return false, nil
			}
		}
	}
	return c.fillEvents(""), nil
}

// fillEvents adds the events after a cursor, without its first byte. It returns true if no pairs are left.
func (c *chunk) fillEvents(cursor string) (done bool) {
	log, after, _ := strings.Cut(cursor, "\x00")
	for _, name := range eventLogs(c.tx) {
		if name < log {
			continue
		}
		if name > log {
			after = ""
		}
		for key, value := range valuesAfter(c.tx, bucketEvents, name, after) {
			p := statelog.Pair{Bucket: bucketEvents, Source: name, Key: key, Value: value}
			if c.add(p, "\x00"+name+"\x00"+key) {
				return false
			}
		}
	}
	return true
}

// add adds a copy of a pair. It returns whether the chunk is full.
func (c *chunk) add(p statelog.Pair, next string) (full bool) {
	c.next = next
	c.release(c.tx, len(p.Value))
	if _, err := unseal(p.Key, p.Value); err != nil {
		if p.Bucket != bucketEvents || !strings.HasPrefix(p.Source, parkedOf("")) {
			return false
		}
		p.Value = seal(p.Key, make([]byte, sealSize)) // nothing else shows that there was an event
	}
	p.Value = bytes.Clone(p.Value)
	c.pairs = append(c.pairs, p)
	c.left -= len(p.Key) + len(p.Value)
	return c.left <= 0
}

// valuesAfter returns the values of a source in a bucket after a key, in key order.
func valuesAfter(tx *bbolt.Tx, bucket, source, after string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		values := tx.Bucket([]byte(bucket))
		if values != nil {
			values = values.Bucket([]byte(source))
		}
		if values == nil {
			return
		}
		cursor := values.Cursor()
		key, value := cursor.Seek([]byte(after))
		if string(key) == after {
			key, value = cursor.Next()
		}
		for ; key != nil && yield(string(key), value); key, value = cursor.Next() {
		}
	}
}
