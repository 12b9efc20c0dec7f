package statelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/files"
)

var examplePairs = []Pair{
	{Bucket: "rows", Source: "pods", Key: "ns/name", Value: []byte("value")},
	{Bucket: "rows", Source: "pods", Key: "ns/empty", Value: []byte{}},
	{Bucket: "rows", Source: "pods", Key: "ns/removed"},
	{Bucket: "rows", Source: "services"},
	{Key: "\x00\xff", Value: bytes.Repeat([]byte("long"), 500)},
}

// A commit of any size can be split into records of any size.
func TestRecords(t *testing.T) {
	for _, size := range []int{minRecord, minRecord + 1, 100, 1000, 1 << 20} {
		for _, pairs := range [][]Pair{nil, examplePairs[:1], examplePairs} {
			c := &commit{
				header{kind: kindRefresh, last: true, epoch: 1 << 63, number: 1 << 40, previous: 0xfffefdfc},
				encodePairs(pairs),
			}
			var got commit
			parts := c.records(size)
			for part := range parts {
				record := c.record(size, part)
				if len(record) > size {
					t.Fatalf("a record of %d bytes, not %d", len(record), size)
				}
				h, data, err := decode(record)
				if err != nil || h.part != part || h.parts != parts {
					t.Fatalf("part %d of %d: %+v, %v", part, parts, h, err)
				}
				h.part, h.parts = 0, 0
				got = commit{h, append(got.payload, data...)}
			}
			decoded, err := got.pairs()
			if err != nil || got.header != c.header || got.chain() != c.chain() {
				t.Errorf("%+v, %v, want %+v", got.header, err, c.header)
			}
			if diff := cmp.Diff(pairs, decoded); diff != "" {
				t.Errorf("records of %d bytes: %s", size, diff)
			}
		}
	}
}

// A change of any bit of a record is detected, and so is a missing end.
func TestDamage(t *testing.T) {
	c := &commit{header{kind: kindChanges, epoch: 3, number: 300}, encodePairs(examplePairs[:3])}
	record := c.record(1000, 0)
	for at := range record {
		if _, _, err := decode(record[:at]); !errors.Is(err, ErrDamaged) {
			t.Errorf("the first %d bytes: %v", at, err)
		}
		for bit := range 8 {
			damaged := slices.Clone(record)
			damaged[at] ^= 1 << bit
			if _, _, err := decode(damaged); !errors.Is(err, ErrDamaged) {
				t.Errorf("bit %d of byte %d: %v", bit, at, err)
			}
		}
	}
}

// resum corrects the checksum of a record.
func resum(record []byte) []byte {
	binary.LittleEndian.PutUint32(record[1:], recordSum(record))
	return record
}

func TestOtherFormats(t *testing.T) {
	c := &commit{header{kind: kindChanges, epoch: 3, number: 4}, nil}
	with := func(at int, b byte) []byte {
		record := c.record(1000, 0)
		record[at] = b
		return resum(record)
	}
	for name, test := range map[string]struct {
		record []byte
		want   error
	}{
		"the next version":    {with(0, files.Format+1), ErrNewer},
		"unknown content":     {resum([]byte{files.Format + 1, 0, 0, 0, 0, 1}), ErrNewer},
		"version 0":           {with(0, 0), ErrDamaged},
		"kind 0":              {with(5, 0), ErrDamaged},
		"kind 4":              {with(5, 4), ErrDamaged},
		"part 1 of 1":         {with(8, 1), ErrDamaged},
		"no parts":            {with(9, 0), ErrDamaged},
		"a number has no end": {resum(append(c.record(1000, 0)[:9], 0x80)), ErrDamaged},
		"no chain":            {resum(c.record(1000, 0)[:12]), ErrDamaged},
	} {
		if _, _, err := decode(test.record); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}

// The chain depends on everything in a commit and on all commits before it.
func TestChain(t *testing.T) {
	seen := map[uint32]header{}
	for _, h := range []header{
		{kind: kindChanges, number: 1},
		{kind: kindChanges, number: 2},
		{kind: kindChanges, number: 1, epoch: 1},
		{kind: kindChanges, number: 1, previous: 1},
		{kind: kindRefresh, number: 1},
		{kind: kindRefresh, number: 1, last: true},
	} {
		for _, payload := range []string{"", "a"} {
			c := &commit{h, []byte(payload)}
			if other, ok := seen[c.chain()]; ok {
				t.Errorf("%+v and %+v have the same chain", h, other)
			}
			seen[c.chain()] = h
		}
	}
}

func TestClaimCheck(t *testing.T) {
	own := Claim{Installation: "a", Cluster: "uid", Lease: "ns/l"}
	for _, test := range []struct {
		claim Claim
		want  error
		says  string
	}{
		{own, nil, ""},
		{Claim{}, nil, ""},
		{Claim{Installation: "a", Epoch: 9, Holder: "other", Configuration: "other", Started: time.Now()}, nil, ""},
		{Claim{Installation: "b", Cluster: "uid", Holder: "pod-1"}, ErrForeign, `"b" (pod-1)`},
		{Claim{Installation: "a", Cluster: "diu", Holder: "pod-1"}, ErrForeign, "cluster diu (pod-1)"},
		{Claim{Installation: "a", Cluster: "uid", Lease: "ns/m", Holder: "pod-1"}, ErrForeign, "Lease ns/m (pod-1)"},
	} {
		err := test.claim.check(own)
		if !errors.Is(err, test.want) || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%+v: %v", test.claim, err)
		}
	}
	if err := (Claim{Installation: "b", Cluster: "c", Lease: "ns/l"}).check(Claim{}); err != nil {
		t.Errorf("a process that knows nothing: %v", err)
	}
}

// The decoder accepts only records that the encoder can create, and never panics.
func FuzzDecode(f *testing.F) {
	c := &commit{header{kind: kindChanges, epoch: 1, number: 2}, encodePairs(examplePairs)}
	f.Add(c.record(100, 3))
	f.Add(c.record(1<<20, 0))
	f.Fuzz(func(t *testing.T, record []byte) {
		if len(record) > 5 {
			record = resum(slices.Clone(record))
		}
		h, data, err := decode(record)
		if err != nil {
			return
		}
		c := commit{h, data}
		if pairs, err := c.pairs(); err == nil {
			again, err := (&commit{h, encodePairs(pairs)}).pairs()
			if diff := cmp.Diff(pairs, again); err != nil || diff != "" {
				t.Errorf("%v: %s", err, diff)
			}
		}
		_, _ = c.claim()
	})
}
