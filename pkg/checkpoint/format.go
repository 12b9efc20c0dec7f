package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"

	"github.com/klauspost/compress/s2"
	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// formatVersion is the version of the format below. A file with a higher one is quarantined.
const formatVersion = 1

// The buckets of the file, and the keys of the first one. All values except the format's are sealed.
const (
	bucketStore   = "deltabridge"
	keyFormat     = "format"  // formatVersion in decimal digits; all versions must be able to read it
	keyStore      = "store"   // storeRecord as JSON
	bucketSources = "sources" // name of the source -> sourceRecord as JSON
	bucketRows    = "rows"    // name of the source -> bucket: key of the row -> row
)

// storeRecord is about the whole file.
type storeRecord struct {
	ClusterName string            `json:"clusterName"`
	ClusterUID  string            `json:"clusterUID"`
	Sinks       map[string]string `json:"sinks"`             // sink -> its configuration
	Sources     []string          `json:"sources"`           // sorted; a source of which nothing else is found is damaged
	Privacy     string            `json:"privacy,omitempty"` // Privacy.Name of all rows
	// Destinations says for each sink which destination has what was settled for it.
	Destinations map[string]string `json:"destinations,omitempty"`
	Watch        string            `json:"watch,omitempty"`       // what is watched, as SetWatch noted it
	WatchChange  string            `json:"watchChange,omitempty"` // the last change of Watch; may be empty
}

// clone returns a copy that shares no slice or map that changes.
func (r storeRecord) clone() storeRecord {
	r.Sources, r.Destinations = slices.Clone(r.Sources), maps.Clone(r.Destinations)
	return r
}

func (r storeRecord) knows(source string) bool {
	_, found := slices.BinarySearch(r.Sources, source)
	return found
}

// sourceRecord is a State, and what its rows must add up to. The sum ties the rows to the watermark: in a page that was
// lost, or that an earlier commit wrote, each row is sound by itself.
type sourceRecord struct {
	Group           string            `json:"group"`
	Version         string            `json:"version"`
	Resource        string            `json:"resource"`
	Namespace       string            `json:"namespace,omitempty"`
	LabelSelector   string            `json:"labelSelector,omitempty"`
	FieldSelector   string            `json:"fieldSelector,omitempty"`
	Scope           string            `json:"scope,omitempty"`
	Defined         bool              `json:"defined,omitempty"`
	ResourceVersion string            `json:"resourceVersion"`
	Sinks           map[string]string `json:"sinks"`
	Rows            tally             `json:"rows"`

	Refilters map[string]ledger.Refilter `json:"refilters,omitempty"`
}

// tally is a checksum of a set of rows that is updated row by row.
type tally struct {
	Count int    `json:"count"`
	Sum   uint64 `json:"sum"` // of the rows' checksums, modulo 2^64
}

// add counts a sealed row.
func (t *tally) add(sealed []byte) {
	t.Count++
	t.Sum += uint64(checksumOf(sealed))
}

// remove uncounts a sealed row. After a damaged one the tally no longer adds up, as it must.
func (t *tally) remove(sealed []byte) {
	t.Count--
	t.Sum -= uint64(checksumOf(sealed))
}

func (r *sourceRecord) set(s *ledger.State) {
	of := s.Source
	r.Group, r.Version, r.Resource = of.Resource.Group, of.Resource.Version, of.Resource.Resource
	r.Namespace, r.LabelSelector, r.FieldSelector = of.Namespace, of.LabelSelector, of.FieldSelector
	r.Scope, r.Defined = of.Scope, of.Defined
	r.ResourceVersion, r.Sinks, r.Refilters = s.ResourceVersion, s.Sinks, s.Refilters
}

func (r *sourceRecord) state(name string) ledger.State {
	sinks := r.Sinks
	if sinks == nil {
		sinks = map[string]string{}
	}
	return ledger.State{
		Source: ledger.Source{
			Name:      name,
			Resource:  schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource},
			Namespace: r.Namespace, LabelSelector: r.LabelSelector, FieldSelector: r.FieldSelector,
			Scope: r.Scope, Defined: r.Defined,
		},
		ResourceVersion: r.ResourceVersion, Sinks: sinks, Refilters: r.Refilters,
	}
}

// A sealed value is
//
//	CRC-32C (RFC 3720, 12.1) of key and content, little endian, 4 bytes
//	content
//
// Because the CRC covers the key, no value is taken for the value of another key.
const sealSize = 4

// seal puts the checksum into the first sealSize bytes of b. The content follows them.
func seal(key string, b []byte) []byte {
	binary.LittleEndian.PutUint32(b, checksum(key, b[sealSize:]))
	return b
}

// unseal returns the content of a sealed value; it aliases b.
func unseal(key string, b []byte) ([]byte, error) {
	if len(b) < sealSize {
		return nil, fmt.Errorf("%w: %q has %d bytes", boltfile.ErrDamaged, key, len(b))
	}
	if checksumOf(b) != checksum(key, b[sealSize:]) {
		return nil, fmt.Errorf("%w: checksum of %q is wrong", boltfile.ErrDamaged, key)
	}
	return b[sealSize:], nil
}

func checksum(key string, content []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // made once, by hash/crc32
	return crc32.Update(crc32.Update(0, table, []byte(key)), table, content)
}

// checksumOf returns the checksum that a sealed value contains; 0 if it is too short for one.
func checksumOf(sealed []byte) uint32 {
	if len(sealed) < sealSize {
		return 0
	}
	return binary.LittleEndian.Uint32(sealed)
}

// putJSON puts a record into a bucket.
func putJSON(tx *bbolt.Tx, bucket, key string, record any) error {
	content, err := json.Marshal(record)
	if err != nil {
		return fmt.Errorf("encode %q: %w", key, err)
	}
	value := seal(key, append(make([]byte, sealSize, sealSize+len(content)), content...))
	return tx.Bucket([]byte(bucket)).Put([]byte(key), value)
}

// getJSON reads what putJSON put.
func getJSON(tx *bbolt.Tx, bucket, key string, record any) error {
	content, err := unseal(key, tx.Bucket([]byte(bucket)).Get([]byte(key)))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, record); err != nil {
		return fmt.Errorf("%w: %q is not valid JSON: %w", boltfile.ErrDamaged, key, err)
	}
	return nil
}

func getSource(tx *bbolt.Tx, name string) (r sourceRecord, err error) {
	err = getJSON(tx, bucketSources, name, &r)
	return r, err
}

func getRecord(tx *bbolt.Tx) (r storeRecord, err error) {
	err = getJSON(tx, bucketStore, keyStore, &r)
	return r, err
}

// A row's content is
//
//	kind of the body, 1 byte
//	length of the manager, unsigned varint; the manager
//	body: the object's JSON
//
// The rest of an object.Object is read from its JSON.
const (
	bodyRaw    byte = 1 // JSON as it is
	bodyS2     byte = 2 // JSON as one block of s2, see github.com/klauspost/compress/s2
	bodySealed byte = 3 // redacted JSON, and behind it the JSON itself, encrypted: see appendSealed
)

// minS2 is the size below which compression is not tried, in bytes: it would not save a page.
const minS2 = 256

// rowCodec encodes and decodes the rows of one resource. It keeps a buffer. Not for concurrent use.
type rowCodec struct {
	privacy  Privacy
	resource schema.GroupVersionResource
	buffer   []byte
}

// encode returns the sealed row of an object, in new memory.
func (c *rowCodec) encode(key string, o *object.Object) []byte {
	raw := c.privacy.redact(c.resource, o)
	kind, body := c.compress(raw)
	if c.privacy.Seal != nil && !same(raw, o.Raw) {
		kind, body = bodySealed, c.appendSealed(key, kind, body, o.Raw)
	}
	row := make([]byte, sealSize, sealSize+1+binary.MaxVarintLen32+len(o.Manager)+len(body))
	row = append(row, kind)
	row = binary.AppendUvarint(row, uint64(len(o.Manager)))
	row = append(row, o.Manager...)
	return seal(key, append(row, body...))
}

// compress returns raw as a body, which may be in the codec's buffer.
func (c *rowCodec) compress(raw []byte) (kind byte, body []byte) {
	if len(raw) >= minS2 {
		if n := s2.MaxEncodedLen(len(raw)); cap(c.buffer) < n {
			c.buffer = make([]byte, n)
		}
		if short := s2.Encode(c.buffer[:cap(c.buffer)], raw); len(short) < len(raw)*7/8 {
			return bodyS2, short
		}
	}
	return bodyRaw, raw
}

// expand is the opposite of compress.
func (c *rowCodec) expand(kind byte, body []byte) ([]byte, error) {
	switch kind {
	case bodyRaw:
		return body, nil
	case bodyS2:
		raw, err := s2.Decode(c.buffer[:cap(c.buffer)], body)
		if err == nil {
			c.buffer = raw
		}
		return raw, err
	default:
		return nil, fmt.Errorf("unknown kind %d", kind)
	}
}

// decode returns the object of a sealed row. They share no memory.
func (c *rowCodec) decode(key string, sealed []byte) (*object.Object, error) {
	content, err := unseal(key, sealed)
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		return nil, fmt.Errorf("%w: row %q is empty", boltfile.ErrDamaged, key)
	}
	kind, rest := content[0], content[1:]
	length, n := binary.Uvarint(rest)
	if n <= 0 || length > uint64(len(rest)-n) {
		return nil, fmt.Errorf("%w: row %q has no manager", boltfile.ErrDamaged, key)
	}
	manager, body := string(rest[n:n+int(length)]), rest[n+int(length):]
	if kind == bodySealed {
		kind, body, err = c.open(key, body)
	}
	if err == nil {
		body, err = c.expand(kind, body)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: row %q: %w", boltfile.ErrDamaged, key, err)
	}
	o, err := object.New(body) // copies
	if err != nil {
		return nil, fmt.Errorf("%w: row %q: %w", boltfile.ErrDamaged, key, err)
	}
	if o.Key() != key {
		return nil, fmt.Errorf("%w: row %q holds %q", boltfile.ErrDamaged, key, o.Key())
	}
	o.Manager = manager
	return o, nil
}

// parseFormat parses the value of keyFormat.
func parseFormat(b []byte) (int, error) {
	version, err := strconv.Atoi(string(b))
	if err != nil || version < 1 {
		return 0, fmt.Errorf("%w: format version %q", boltfile.ErrDamaged, b)
	}
	return version, nil
}
