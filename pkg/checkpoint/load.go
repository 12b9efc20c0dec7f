package checkpoint

import (
	"errors"
	"fmt"
	"maps"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// States gives all sources without their rows, by name. One that can't be read is left out, see Load.
func (s *Store) States() ([]ledger.State, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return nil, ErrClosed
	}
	var states []ledger.State
	for _, name := range s.record.Sources {
		if s.isDamaged(name) {
			continue
		}
		err := s.view(func(tx *bbolt.Tx) error {
			r, err := getSource(tx, name)
			if err == nil {
				states = append(states, r.state(name))
			}
			return err
		})
		if err != nil {
			if !errors.Is(err, errDamaged) {
				return nil, explain("read the checkpoint", s.path, err)
			}
			s.giveUp(name, err)
		}
	}
	return states, nil
}

// Load gives a source and its rows, in the order of their keys; the zero State if there is none. The rows are those
// that were committed together with the state, all of them, or none.
//
// A source of which anything can't be read, or does not add up, is as if it had no checkpoint: the zero State. That is
// logged and counted, and its rows are removed by the next Commit of it. The error is about reading the file at all.
//
// Sources may be loaded at the same time.
func (s *Store) Load(source string) (ledger.State, []*object.Object, error) {
	return s.loadSource(source, true)
}

// LoadIndex is Load without the objects' Raw, which Fetch gives: what is read then takes little memory.
func (s *Store) LoadIndex(source string) (ledger.State, []*object.Object, error) {
	return s.loadSource(source, false)
}

func (s *Store) loadSource(source string, bytes bool) (ledger.State, []*object.Object, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return ledger.State{}, nil, ErrClosed
	}
	if !s.record.knows(source) || s.isDamaged(source) {
		return ledger.State{}, nil, nil
	}
	var record sourceRecord
	var rows []*object.Object
	err := s.view(func(tx *bbolt.Tx) (err error) {
		if record, err = getSource(tx, source); err != nil {
			return err
		}
		rows, err = readRows(tx.Bucket([]byte(bucketRows)).Bucket([]byte(source)), record.Rows, s.opts.Privacy, func(o *object.Object, size int) error {
			if !bytes {
				o.Raw = nil
			}
			s.resident.Used(s.db, tx, int64(size))
			return nil
		})
		return err
	})
	if errors.Is(err, errDamaged) {
		s.giveUp(source, err)
		return ledger.State{}, nil, nil
	}
	if err != nil {
		return ledger.State{}, nil, explain("read the checkpoint", s.path, err)
	}
	return record.state(source), rows, nil
}

// readRows reads all rows of a source, which must add up to want. each is called for each of them, with its size in the
// file.
func readRows(bucket *bbolt.Bucket, want tally, privacy *Privacy, each func(o *object.Object, size int) error) ([]*object.Object, error) {
	if bucket == nil {
		return nil, fmt.Errorf("%w: the rows are missing", errDamaged)
	}
	var (
		codec = rowCodec{privacy: privacy}
		sum   tally
		rows  []*object.Object
	)
	err := bucket.ForEach(func(key, value []byte) error {
		o, err := codec.decode(string(key), value)
		if err != nil {
			return err
		}
		sum.add(value)
		rows = append(rows, o)
		return each(o, len(value))
	})
	if err == nil && sum != want {
		err = fmt.Errorf("%w: %d rows with sum %#x, of %d rows with sum %#x", errDamaged, sum.Count, sum.Sum, want.Count, want.Sum)
	}
	if err != nil {
		return nil, err
	}
	return rows, nil
}

func getSource(tx *bbolt.Tx, name string) (r sourceRecord, err error) {
	value := tx.Bucket([]byte(bucketSources)).Get([]byte(name))
	if value == nil {
		return r, fmt.Errorf("%w: the record of source %q is missing", errDamaged, name)
	}
	return r, unsealJSON(name, value, &r)
}

// giveUp notes that a source can't be read.
func (s *Store) giveUp(source string, err error) {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	if s.damaged[source] {
		return
	}
	s.damaged[source] = true
	s.stats.Damaged++
	s.logger.Warn("checkpoint of a source is damaged and not used; the source is listed afresh",
		"source", source, "path", s.path, "error", err, "remedy", "check the disk: something changed bytes that the bridge wrote")
}

func (s *Store) isDamaged(source string) bool {
	s.statsMu.Lock()
	defer s.statsMu.Unlock()
	return s.damaged[source]
}

// Destination is what SetDestination noted of a sink; empty if it noted nothing.
func (s *Store) Destination(sink string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.record.Destinations[sink]
}

// SetDestination notes which destination has what was settled for a sink. It is on the disk when SetDestination returns.
func (s *Store) SetDestination(sink, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.db == nil {
		return ErrClosed
	}
	if s.record.Destinations[sink] == name {
		return nil
	}
	record := s.record
	record.Destinations = maps.Clone(record.Destinations)
	if record.Destinations == nil {
		record.Destinations = map[string]string{}
	}
	record.Destinations[sink] = name
	if err := s.update(func(tx *bbolt.Tx) error { return putRecord(tx, record) }); err != nil {
		return explain("write the checkpoint", s.path, err)
	}
	s.record = record
	return nil
}

// SinkConfig gives the configuration of a sink as the last commit noted it; known is false if it noted none.
func (s *Store) SinkConfig(sink string) (text string, known bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.db == nil {
		return "", false, ErrClosed
	}
	text, known = s.record.Sinks[sink]
	return text, known, nil
}
