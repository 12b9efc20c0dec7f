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

// Privacy defines which data rows may contain in plain text.
type Privacy struct {
	// Name identifies the behavior of Redact and Seal, including their keys. If the rows in the file were written under
	// another name, Open rewrites them.
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

// rewriteIfNecessary replaces the file with a copy if the Privacy has changed or if the file is sparse. If a sparse
// file cannot be copied, it stays in use.
func (s *Store) rewriteIfNecessary() error {
	usage, changed := s.file.Usage(), s.record.Privacy != s.opts.Privacy.Name
	if !changed && !isSparse(usage) {
		return nil
	}
	record, err := s.prepareCopy()
	switch {
	case err == nil:
		s.logger.Info("checkpoint rewritten", "path", s.path, "redactChanged", changed,
			"bytesBefore", usage.Total, "bytesUsed", usage.Used)
		return s.install(record)
	case changed:
		return fmt.Errorf("redact the checkpoint's rows as configured: %w", err)
	default:
		s.logger.Warn("cannot compact the checkpoint, keeping it as it is", "path", s.path, "err", err)
		return nil
	}
}

// prepareCopy creates a file with the sources and rows of the current file, and without its free pages. The new rows
// conform to the current Privacy.
func (s *Store) prepareCopy() (storeRecord, error) {
	t := &transaction{store: s, codec: rowCodec{privacy: s.opts.Privacy}, record: s.record.clone()}
	t.record.Privacy, t.record.Sources = s.opts.Privacy.Name, nil
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
				s.logger.Warn("a damaged source is left out of the rewritten checkpoint; its objects are listed again",
					"source", name, "err", err)
				err = update(func() error { return t.forget(name) })
			}
			if err != nil {
				return err
			}
		}
		return update(func() error { return putJSON(t.Tx, bucketStore, keyStore, t.record) })
	})
	return t.record, err
}

// moveBytes is the approximate number of row bytes that one transaction of rewrite writes.
const moveBytes = 4 << 20

// rewriteSource calls write with updates that together contain the state and all rows of a source.
func (s *Store) rewriteSource(name string, write func(*ledger.Update) error) error {
	return s.view(func(tx *bbolt.Tx) error {
		record, err := getSource(tx, name)
		if err != nil {
			return err
		}
		u, size := ledger.Update{State: record.State, ReplaceRows: true}, 0
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
