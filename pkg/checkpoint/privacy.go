package checkpoint

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Privacy says what rows may hold in clear. It must not change while a store is open.
type Privacy struct {
	// Name stands for all that follows, keys included. Rows that were written under another one are rewritten by Open.
	Name string
	// Redact gives the JSON of an object (its Raw) as it may lie on the disk: the same slice if that is how it is. To
	// redact twice must be to redact once.
	Redact func(schema.GroupVersionResource, *object.Object) []byte
	// Seal, if not nil, makes a row hold what Redact took out too, encrypted, and Fetch and Load give it back. What
	// can't be decrypted is given redacted. Its nonces must be its own, as those of cipher.NewGCMWithRandomNonce are.
	Seal cipher.AEAD
}

func (p *Privacy) name() string {
	if p == nil {
		return ""
	}
	return p.Name
}

func (p *Privacy) redact(resource schema.GroupVersionResource, o *object.Object) []byte {
	if p == nil || p.Redact == nil || o.Hidden {
		return o.Raw
	}
	return p.Redact(resource, o)
}

func (p *Privacy) seals() bool { return p != nil && p.Seal != nil }

// same reports whether two slices are one.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// A sealed body is
//
//	kind of the redacted body, 1 byte; its length, unsigned varint; the redacted body
//	the JSON as a body with its kind in front, encrypted; the key of the row is authenticated with it
//
// so that without the key it is what is stored where nothing is encrypted.
func (c *rowCodec) appendSealed(key string, kind byte, redacted, raw []byte) []byte {
	body := append(binary.AppendUvarint([]byte{kind}, uint64(len(redacted))), redacted...)
	kind, raw = c.compress(raw)
	return c.privacy.Seal.Seal(body, nil, append([]byte{kind}, raw...), []byte(key))
}

// open gives the body inside of a sealed one.
func (c *rowCodec) open(key string, sealed []byte) (kind byte, body []byte, err error) {
	if len(sealed) < 2 {
		return 0, nil, errors.New("sealed body is too short")
	}
	length, n := binary.Uvarint(sealed[1:])
	if n <= 0 || length > uint64(len(sealed)-1-n) {
		return 0, nil, errors.New("sealed body has no end")
	}
	redacted, encrypted := sealed[1+n:1+n+int(length)], sealed[1+n+int(length):]
	if c.privacy.seals() {
		if inner, err := c.privacy.Seal.Open(nil, nil, encrypted, []byte(key)); err == nil && len(inner) > 0 {
			return inner[0], inner[1:], nil
		}
	}
	return sealed[0], redacted, nil
}

// rewrite puts in the place of the file one whose rows are what Privacy asks for. Nothing of what was in the old one
// stays in the new one, not even in free pages. If that fails the file stays, and must not be used.
func (s *Store) rewrite() error {
	record := s.record.clone()
	record.Privacy = s.opts.Privacy.name()
	err := boltfile.Prepare(s.path, s.fileOptions(), func(to *bbolt.DB) error {
		if err := putEmpty(to, record); err != nil {
			return err
		}
		for _, name := range record.Sources {
			err := s.rewriteSource(to, name)
			if errors.Is(err, boltfile.ErrDamaged) { // its record is missing then: it is listed afresh
				s.logger.Warn("source is left out of the rewritten checkpoint", "source", name, "err", err)
				err = to.Update(func(tx *bbolt.Tx) error { return deleteBucket(tx.Bucket([]byte(bucketRows)), name) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("bring its rows into line with what is to be redacted: %w", err)
	}
	s.logger.Info("checkpoint rewritten, for what is to be redacted changed", "path", s.path)
	return s.install()
}

// rewriteSource copies a source. The rows come in the order of their keys.
func (s *Store) rewriteSource(to *bbolt.DB, name string) error {
	return s.view(func(tx *bbolt.Tx) error {
		record, err := getSource(tx, name)
		if err != nil {
			return err
		}
		codec, sum := rowCodec{privacy: s.opts.Privacy}, tally{}
		var batch []*object.Object
		size := 0
		flush := func() error {
			err := to.Update(func(tx *bbolt.Tx) error {
				rows, err := createRows(tx.Bucket([]byte(bucketRows)), name)
				if err != nil {
					return err
				}
				return codec.put(rows, record.state(name).Source.Resource, batch, &sum)
			})
			batch, size = batch[:0], 0
			return err
		}
		err = s.eachRow(tx, name, record.Rows, func(o *object.Object, n int) error {
			batch, size = append(batch, o), size+n
			s.release(tx, n)
			if size < stageBytes {
				return nil
			}
			return flush()
		})
		if err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
		record.Rows = sum
		return to.Update(func(tx *bbolt.Tx) error { return putSource(tx, name, record) })
	})
}
