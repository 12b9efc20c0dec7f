package checkpoint

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/klauspost/compress/s2"
	"go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// The buckets of the file, and the keys in the first bucket, in which boltfile has the format. All other values are
// sealed.
const (
	bucketStore   = "deltabridge"
	keyStore      = "store"   // storeRecord as JSON
	keyPoint      = "point"   // storeRecord.Point as JSON; missing if the file is not a copy of a log
	bucketSources = "sources" // source name -> sourceRecord as JSON
	bucketRows    = "rows"    // source name -> bucket: row key -> row

	// bucketEvents exists only if the file has had events. It contains a bucket for the spilled events of each sink, and
	// one for the parked events. The former contains the events by their number, and an eventsRecord as JSON. The keys of
	// the latter are those of package parked.
	bucketEvents = "events"
	keyEvents    = "log"
	// keyIncomplete is in the bucket of the spilled events while the log has received a part of them (Unsent), and not
	// the record yet that counts them. The file of the process that sends them does not have it.
	keyIncomplete = "part"

	// bucketUnsent exists only while the file is ahead of the log. Its keys name the values that have changed: see
	// markerOf.
	bucketUnsent = "unsent"
)

// spillOf returns the name of the bucket with the spilled events of a sink.
func spillOf(sink string) string { return "spill-" + sink }

// parkedOf returns the name of the bucket with the parked events of a sink.
func parkedOf(sink string) string { return "parked-" + sink }

// storeRecord describes the whole file.
type storeRecord struct {
	ClusterName string            `json:"clusterName"`
	ClusterUID  string            `json:"clusterUID"`
	Sinks       map[string]string `json:"sinks"`             // sink -> configuration
	Sources     []string          `json:"sources"`           // sorted; a source without a source record is damaged
	Privacy     string            `json:"privacy,omitempty"` // Privacy.Name that applied when the rows were written
	// Destinations contains, by sink, the name of the destination that received the sink's settled events.
	Destinations map[string]string `json:"destinations,omitempty"`
	Watch        string            `json:"watch,omitempty"`       // last argument of SetWatch
	WatchChange  string            `json:"watchChange,omitempty"` // name of the last change to Watch; may be empty
	Epoch        string            `json:"epoch,omitempty"`       // see SetWatch
	// Installation is a random name. No other checkpoint whose events go to the same destination has this name.
	Installation string `json:"installation,omitempty"`
	// Positions contains, by sink, the positions in its destination.
	Positions map[string]sinks.Positions `json:"positions,omitempty"`
	// Paused contains, by sink, when the sink was paused.
	Paused map[string]time.Time `json:"paused,omitempty"`
	// Lost contains, by sink, when events of the sink were found to be lost, until the sink was sent that they are.
	Lost map[string]time.Time `json:"lost,omitempty"`
	// Point is the point of the log that the content of the file corresponds to. It is not part of the content.
	Point statelog.Point `json:"-"`
}

// clone returns a copy. The copy shares only maps that are replaced but never modified.
func (r storeRecord) clone() storeRecord {
	r.Sources, r.Destinations = slices.Clone(r.Sources), maps.Clone(r.Destinations)
	r.Positions, r.Paused, r.Lost = maps.Clone(r.Positions), maps.Clone(r.Paused), maps.Clone(r.Lost)
	return r
}

// add replaces the positions of parts of the sinks' destinations.
func (r *storeRecord) add(positions map[string]sinks.Positions) {
	if len(positions) > 0 && r.Positions == nil {
		r.Positions = map[string]sinks.Positions{}
	}
	for sink, of := range positions {
		all := sinks.Positions{}
		maps.Copy(all, r.Positions[sink])
		maps.Copy(all, of)
		r.Positions[sink] = all
	}
}

func (r storeRecord) knows(source string) bool {
	_, found := slices.BinarySearch(r.Sources, source)
	return found
}

// sourceRecord is a State with the tally of the source's rows. The tally connects the rows to the watermark: rows
// in a page that an earlier commit wrote have valid checksums, but do not add up to the tally.
type sourceRecord struct {
	ledger.State

	Rows tally `json:"rows"`
}

// tally is the checksum of a set of rows. It can be updated row by row.
type tally struct {
	Count int    `json:"count"`
	Sum   uint64 `json:"sum"` // sum of the rows' checksums, modulo 2^64
}

// add adds a sealed row to the tally.
func (t *tally) add(sealed []byte) {
	t.Count++
	t.Sum += uint64(checksumOf(sealed))
}

// remove subtracts a sealed row from the tally. If the row is damaged, the tally no longer matches the rows, so Load
// detects the damage.
func (t *tally) remove(sealed []byte) {
	t.Count--
	t.Sum -= uint64(checksumOf(sealed))
}

// A sealed value consists of
//
//	CRC-32C (RFC 3720, 12.1) of key and content, little endian, 4 bytes
//	content
//
// The CRC covers the key, so a value that is stored under the wrong key is detected.
const sealSize = 4

// seal writes the checksum into the first sealSize bytes of b. The content must follow these bytes.
func seal(key string, b []byte) []byte {
	binary.LittleEndian.PutUint32(b, checksum(key, b[sealSize:]))
	return b
}

// unseal returns the content of a sealed value. The content shares memory with b.
func unseal(key string, b []byte) ([]byte, error) {
	if len(b) < sealSize {
		return nil, fmt.Errorf("%w: the value of %q is too short (%d bytes)", boltfile.ErrDamaged, key, len(b))
	}
	if checksumOf(b) != checksum(key, b[sealSize:]) {
		return nil, fmt.Errorf("%w: %q does not match its checksum", boltfile.ErrDamaged, key)
	}
	return b[sealSize:], nil
}

func checksum(key string, content []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli) // hash/crc32 creates this table only once
	return crc32.Update(crc32.Update(0, table, []byte(key)), table, content)
}

// checksumOf returns the checksum in a sealed value, or 0 if the value is too short.
func checksumOf(sealed []byte) uint32 {
	if len(sealed) < sealSize {
		return 0
	}
	return binary.LittleEndian.Uint32(sealed)
}

// sealJSON returns a record as a sealed value.
func sealJSON(key string, record any) ([]byte, error) {
	content, err := json.Marshal(record)
	if err != nil {
		return nil, fmt.Errorf("encode %q: %w", key, err)
	}
	return seal(key, append(make([]byte, sealSize, sealSize+len(content)), content...)), nil
}

// getJSON reads a record that sealJSON encoded.
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
	if err == nil && tx.Bucket([]byte(bucketStore)).Get([]byte(keyPoint)) != nil {
		err = getJSON(tx, bucketStore, keyPoint, &r.Point)
	}
	return r, err
}

// A row's content consists of
//
//	kind of the body, 1 byte
//	length of the manager, unsigned varint; the manager
//	body: the object's JSON
//
// The other fields of an object.Object are derived from the JSON.
const (
	bodyRaw    byte = 1 // uncompressed JSON
	bodyS2     byte = 2 // JSON as one s2 block, see github.com/klauspost/compress/s2
	bodySealed byte = 3 // redacted JSON, followed by the encrypted original JSON: see appendSealed
)

// minS2 is the minimum size for compression, in bytes. Compressing less would not save a page.
const minS2 = 256

// rowCodec encodes and decodes the rows of one resource. It reuses memory and is not safe for concurrent use.
type rowCodec struct {
	privacy  Privacy
	resource schema.GroupVersionResource
	buffer   []byte
	parser   object.Parser
}

// encode returns the sealed row of an object in newly allocated memory.
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

// compress returns raw as a body. The body may use the codec's buffer.
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

// expand reverses compress. The result is in the codec's buffer.
func (c *rowCodec) expand(kind byte, body []byte) ([]byte, error) {
	switch kind {
	case bodyRaw:
		c.buffer = append(c.buffer[:0], body...)
		return c.buffer, nil
	case bodyS2:
		raw, err := s2.Decode(c.buffer[:cap(c.buffer)], body)
		if err == nil {
			c.buffer = raw
		}
		return raw, err
	default:
		return nil, fmt.Errorf("unknown encoding %d", kind)
	}
}

// decode returns the object of a sealed row. Its Raw is valid until the codec is used again.
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
		return nil, fmt.Errorf("%w: row %q: the length of the manager is invalid", boltfile.ErrDamaged, key)
	}
	manager, body := string(rest[n:n+int(length)]), rest[n+int(length):]
	encoding := kind
	if kind == bodySealed {
		encoding, body, err = c.open(key, body)
	}
	if err == nil {
		body, err = c.expand(encoding, body)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: row %q: %w", boltfile.ErrDamaged, key, err)
	}
	o, err := c.parser.Parse(body)
	if err != nil {
		return nil, fmt.Errorf("%w: row %q: %w", boltfile.ErrDamaged, key, err)
	}
	if o.Key() != key {
		return nil, fmt.Errorf("%w: row %q contains the object %q", boltfile.ErrDamaged, key, o.Key())
	}
	o.Manager = manager
	return o, nil
}
