package checkpoint

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Privacy defines which data rows may contain in plain text.
type Privacy struct {
	// Name identifies the behavior of Redact and Seal, including their keys. If the rows in the file were written under
	// another name, Open or TakeOver rewrites them.
	Name string
	// Redact returns the JSON of an object (its Raw) as it may be stored on disk. It returns the same slice if nothing
	// must be hidden. Redacting twice must have the same result as redacting once. If Redact is nil, nothing is redacted.
	Redact func(schema.GroupVersionResource, *object.Object) []byte
	// Seal, if not nil, encrypts the original JSON, which is then stored in the row in addition to the redacted JSON.
	// Fetch returns the original JSON, or the redacted JSON if decryption fails. Seal must create its own nonces, as
	// cipher.NewGCMWithRandomNonce does.
	Seal cipher.AEAD
}

func (p *Privacy) redact(resource schema.GroupVersionResource, o *object.Object) []byte {
	if p.Redact == nil || o.Hidden {
		return o.Raw
	}
	return p.Redact(resource, o)
}

// same reports whether two slices have the same memory and length.
func same(a, b []byte) bool { return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) }

// A sealed body consists of
//
//	kind of the redacted body (1 byte), its length (unsigned varint), the redacted body
//	kind and body of the original JSON, encrypted; the row key is authenticated with them
//
// The redacted JSON can therefore be read without the encryption key.
func (c *rowCodec) appendSealed(key string, kind byte, redacted, raw []byte) []byte {
	body := append(binary.AppendUvarint([]byte{kind}, uint64(len(redacted))), redacted...)
	kind, raw = c.compress(raw)
	return c.privacy.Seal.Seal(body, nil, append([]byte{kind}, raw...), []byte(key))
}

// open returns the original body inside a sealed body, or the redacted body if the original cannot be decrypted.
func (c *rowCodec) open(key string, sealed []byte) (kind byte, body []byte, err error) {
	if len(sealed) < 2 {
		return 0, nil, errors.New("sealed body is too short")
	}
	length, n := binary.Uvarint(sealed[1:])
	if n <= 0 || length > uint64(len(sealed)-1-n) {
		return 0, nil, errors.New("sealed body is truncated")
	}
	redacted, encrypted := sealed[1+n:1+n+int(length)], sealed[1+n+int(length):]
	if c.privacy.Seal != nil {
		if inner, err := c.privacy.Seal.Open(nil, nil, encrypted, []byte(key)); err == nil && len(inner) > 0 {
			return inner[0], inner[1:], nil
		}
	}
	return sealed[0], redacted, nil
}

// conform rewrites all rows if the Privacy has changed, and compacts the file, so that its free pages do not contain
// the old rows either. If it does not complete, the next call does everything again.
func (s *Store) conform() error {
	name := s.opts.Privacy.Name
	if s.record.Privacy == name {
		return nil
	}
	err := s.rewriteRows()
	if err == nil {
		err = s.prepareCopy()
	}
	if err != nil {
		return fmt.Errorf("redact the checkpoint's rows as configured: %w", err)
	}
	if err := s.install(s.record); err != nil {
		return err
	}
	s.logger.Info("checkpoint rewritten, because what is redacted has changed", "path", s.path)
	return s.change(func(r *storeRecord) { r.Privacy = name })
}

// rewriteRows encodes all rows again. It removes sources with rows that cannot be read.
func (s *Store) rewriteRows() error {
	for _, name := range slices.Clone(s.record.Sources) {
		err := s.rewriteSource(name)
		if errors.Is(err, boltfile.ErrDamaged) {
			s.logger.Warn("removing a damaged source from the checkpoint; its objects are listed again",
				"source", name, "err", err)
			err = s.write(func(t *transaction) error { return t.forget(name) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// moveBytes is the approximate number of row bytes that one transaction rewrites.
const moveBytes = 4 << 20

func (s *Store) rewriteSource(name string) error {
	for after, done := "", false; !done; {
		var u ledger.Update
		err := s.view(func(tx *bbolt.Tx) error {
			record, err := getSource(tx, name)
			if err != nil {
				return err
			}
			codec, size := rowCodec{privacy: s.opts.Privacy}, 0
			u.State, done = record.State, true
			for key, sealed := range valuesAfter(tx, bucketRows, name, after) {
				o, err := codec.decode(key, sealed)
				if err != nil {
					return err
				}
				o.Raw = bytes.Clone(o.Raw)
				u.Upserts = append(u.Upserts, o)
				s.release(tx, len(sealed))
				if after, size = key, size+len(o.Raw); size >= moveBytes {
					done = false
					break
				}
			}
			return nil
		})
		if err == nil && len(u.Upserts) > 0 {
			err = s.write(func(t *transaction) error { return t.apply(&u) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}
