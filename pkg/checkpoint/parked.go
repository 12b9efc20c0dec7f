package checkpoint

import (
	"maps"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/deltabridge/deltabridge/internal/boltfile"
)

// Parked stores the parked events of one sink. It implements parked.Storage.
type Parked struct{ table }

// parkedAtOnce is the approximate number of bytes that one transaction of Parked.Update puts.
const parkedAtOnce = 1 << 20

// Parked returns the storage of a sink's parked events. With a Log, use it after TakeOver.
//
// The events are removed by the first Commit whose configurations do not contain the sink.
func (s *Store) Parked(sink string) *Parked { return &Parked{table{s, parkedOf(sink)}} }

// Each implements parked.Storage.
func (p *Parked) Each(after string, call func(key string, value []byte) bool) error {
	err := p.store.view(func(tx *bbolt.Tx) error {
		for key, sealed := range valuesAfter(tx, bucketEvents, p.name, after) {
			p.store.release(tx, len(sealed))
			value, _ := unseal(key, sealed) // nil if it is damaged
			if !call(key, value) {
				break
			}
		}
		return nil
	})
	return boltfile.Explain("read the checkpoint", p.store.path, err)
}

// Update implements parked.Storage. It uses several transactions if it puts much.
func (p *Parked) Update(put map[string][]byte, remove []string) (events int, bytes int64, err error) {
	if len(remove) > 0 {
		err = p.change(func(t *transaction) (err error) {
			events, bytes, err = p.remove(t, remove)
			return err
		})
	}
	for keys := slices.Sorted(maps.Keys(put)); len(keys) > 0 && err == nil; {
		err = p.change(func(t *transaction) (err error) {
			keys, err = p.put(t, keys, put)
			return err
		})
	}
	return events, bytes, err
}

// remove removes values, and returns their number and total size.
func (p *Parked) remove(t *transaction, keys []string) (events int, bytes int64, err error) {
	for _, key := range keys {
		sealed := p.get(t.Tx, key)
		if sealed == nil {
			continue
		}
		value, _ := unseal(key, sealed)
		events++
		bytes += int64(len(value))
		if err := t.set(p.pair(key, nil)); err != nil {
			return 0, 0, err
		}
	}
	return events, bytes, nil
}

// put puts as many values as one transaction should contain, and returns the other keys.
func (p *Parked) put(t *transaction, keys []string, values map[string][]byte) (left []string, err error) {
	size := 0
	for n, key := range keys {
		if size >= parkedAtOnce {
			return keys[n:], nil
		}
		value := append(make([]byte, sealSize, sealSize+len(values[key])), values[key]...)
		if err := t.set(p.pair(key, seal(key, value))); err != nil {
			return nil, err
		}
		size += len(value)
		t.store.release(t.Tx, len(value))
	}
	return nil, nil
}

// Close implements parked.Storage. The store stays open.
func (p *Parked) Close() error { return nil }
