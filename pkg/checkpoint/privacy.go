package checkpoint

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Privacy says what rows may hold in plain text.
type Privacy struct {
	// Name identifies all that follows, keys included. Open rewrites rows that were written under another name.
	Name string
	// Redact returns the JSON of an object (its Raw) as it may be on the disk: the same slice if nothing is to be hidden.
	// Redacting twice must be the same as redacting once. Nil: nothing is redacted.
	Redact func(schema.GroupVersionResource, *object.Object) []byte
	// Seal, if not nil, makes a row also hold what Redact took out, encrypted; Fetch returns it. If it cannot be
	// decrypted, Fetch returns the redacted JSON. Seal makes its own nonces, as cipher.NewGCMWithRandomNonce does.
	Seal cipher.AEAD
}

func (p *Privacy) redact(resource schema.GroupVersionResource, o *object.Object) []byte {
	if p.Redact == nil || o.Hidden {
		return o.Raw
	}
	return p.Redact(resource, o)
}

// same reports whether two slices are one.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// A sealed body is
//
//	kind of the redacted body, 1 byte; its length, unsigned varint; the redacted body
//	the JSON as a body with its kind in front, encrypted; the key of the row is authenticated with it
//
// so that it can be read, redacted, without the key of the encryption.
func (c *rowCodec) appendSealed(key string, kind byte, redacted, raw []byte) []byte {
	body := append(binary.AppendUvarint([]byte{kind}, uint64(len(redacted))), redacted...)
	kind, raw = c.compress(raw)
	return c.privacy.Seal.Seal(body, nil, append([]byte{kind}, raw...), []byte(key))
}

// open returns the body inside of a sealed one.
func (c *rowCodec) open(key string, sealed []byte) (kind byte, body []byte, err error) {
	if len(sealed) < 2 {
		return 0, nil, errors.New("sealed body is too short")
	}
	length, n := binary.Uvarint(sealed[1:])
	if n <= 0 || length > uint64(len(sealed)-1-n) {
		return 0, nil, errors.New("sealed body has no end")
	}
	redacted, encrypted := sealed[1+n:1+n+int(length)], sealed[1+n+int(length):]
	if c.privacy.Seal != nil {
		if inner, err := c.privacy.Seal.Open(nil, nil, encrypted, []byte(key)); err == nil && len(inner) > 0 {
			return inner[0], inner[1:], nil
		}
	}
	return sealed[0], redacted, nil
}

// rewrite puts a file whose rows are as Privacy says in the place of the file. Nothing else of the old file is in the
// new one, not even in free pages. If that fails, the file stays, and must not be used.
func (s *Store) rewrite() error {
	t := &transaction{store: s, codec: rowCodec{privacy: s.privacy}, record: s.record.clone()}
	t.record.Privacy, t.record.Sources = s.privacy.Name, nil
	err := boltfile.Prepare(s.path, s.fileOptions(), func(to *bbolt.DB) error {
		if err := putEmpty(to, t.record); err != nil {
			return err
		}
		update := func(change func() error) error {
			return to.Update(func(tx *bbolt.Tx) error { t.Tx = tx; return change() })
		}
		for _, name := range s.record.Sources {
			err := s.rewriteSource(name, func(u *ledger.Update) error { return update(func() error { return t.apply(u) }) })
			if errors.Is(err, boltfile.ErrDamaged) {
				s.logger.Warn("source is damaged and not in the rewritten checkpoint; it is listed", "source", name, "err", err)
				err = update(func() error { return t.forget(name) })
			}
			if err != nil {
				return err
			}
		}
		return update(func() error { return putJSON(t.Tx, bucketStore, keyStore, t.record) })
	})
	if err != nil {
		return fmt.Errorf("rewrite its rows as the configuration of redact says: %w", err)
	}
	s.logger.Info("redact configuration changed, checkpoint rewritten", "path", s.path)
	return s.install(t.record)
}

// rewriteSource calls write with the state of a source and its rows, in parts.
func (s *Store) rewriteSource(name string, write func(*ledger.Update) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		record, err := getSource(tx, name)
		if err != nil {
			return err
		}
		u, size := ledger.Update{State: record.state(name), ReplaceRows: true}, 0
		err = s.eachRow(tx, name, record.Rows, func(o *object.Object) error {
			if u.Upserts, size = append(u.Upserts, o), size+len(o.Raw); size < moveBytes {
				return nil
			}
			err := write(&u)
			u.ReplaceRows, u.Upserts, size = false, nil, 0
			return err
		})
		if err != nil {
			return err
		}
		return write(&u)
	})
}
