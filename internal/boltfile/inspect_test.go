package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// boltFile is one that has a page of each kind, and where they are.
type boltFile struct {
	b                    []byte
	meta, branch, leaf   int // offsets: of the newest meta page; of a page of a bucket that has many
	inline, inlineHolder int // offsets: of an inline bucket's header; of the page that it is in
}

func newBoltFile(t *testing.T) boltFile {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := openBolt(path, Options{NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		many, err := tx.CreateBucket([]byte("many"))
		if err != nil {
			return err
		}
		for i := range 40 {
			if err := many.Put([]byte{byte(i + 1), 'k'}, make([]byte, 1000)); err != nil {
				return err
			}
		}
		one, err := tx.CreateBucket([]byte("one"))
		if err != nil {
			return err
		}
		return one.Put([]byte("needle"), []byte("value"))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := boltFile{b: b}
	if binary.NativeEndian.Uint64(b[pageSize+pageHeaderSize+48:]) > binary.NativeEndian.Uint64(b[pageHeaderSize+48:]) {
		f.meta = pageSize
	}
	pages := int(binary.NativeEndian.Uint64(b[f.meta+pageHeaderSize+40:]))
	for page := 2; page < pages; page++ {
		at := page * pageSize
		switch flags := binary.NativeEndian.Uint16(b[at+8:]); {
		case flags == pageBranch:
			f.branch = at
		case flags == pageLeaf && bytes.Contains(b[at:at+pageSize], []byte("needle")):
			f.inlineHolder = at
			f.inline = at + bytes.Index(b[at:at+pageSize], []byte("needle")) - 2*pageHeaderSize
		case flags == pageLeaf && binary.NativeEndian.Uint16(b[at+10:]) > 1:
			f.leaf = at
		}
	}
	if slices.Contains([]int{f.branch, f.leaf, f.inline}, 0) {
		t.Fatalf("%+v", f)
	}
	return f
}

func TestInspect(t *testing.T) {
	put16 := func(b []byte, at int, v uint16) { binary.NativeEndian.PutUint16(b[at:], v) }
	put32 := func(b []byte, at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	put64 := func(b []byte, at int, v uint64) { binary.NativeEndian.PutUint64(b[at:], v) }
	// sum makes a meta page's checksum right again.
	sum := func(f boltFile) {
		h := fnv.New64a()
		h.Write(f.b[f.meta+pageHeaderSize:][:metaSummed])
		put64(f.b, f.meta+pageHeaderSize+metaSummed, h.Sum64())
	}
	const element = pageHeaderSize
	tests := []struct {
		name   string
		change func(f boltFile)
		want   string // "": sound
	}{
		{"nothing", func(boltFile) {}, ""},
		{"older meta page", func(f boltFile) { clear(f.b[pageSize-f.meta : 2*pageSize-f.meta]) }, ""},
		{"both meta pages", func(f boltFile) { f.b[element+20]++; f.b[pageSize+element+20]++ }, "checksum of the meta page"},
		{"magic", func(f boltFile) { f.b[element]++; f.b[pageSize+element]++ }, "not a bbolt file"},
		{"version", func(f boltFile) { f.b[element+4]++; f.b[pageSize+element+4]++ }, "version 3"},
		{"size of pages", func(f boltFile) { put32(f.b, f.meta+element+8, 8192); sum(f) }, "."},
		{"odd size of pages", func(f boltFile) {
			clear(f.b[pageSize-f.meta : 2*pageSize-f.meta])
			put32(f.b, f.meta+element+8, 5000)
			sum(f)
		}, "."},
		{
			"more pages than file",
			func(f boltFile) { put64(f.b, f.meta+element+40, 1<<50); sum(f) },
			"pages of 4096 bytes in a file",
		},
		{"fewer pages", func(f boltFile) { put64(f.b, f.meta+element+40, 4); sum(f) }, "page"},
		{"no pages", func(f boltFile) { put64(f.b, f.meta+element+40, 0); sum(f) }, "0 pages"},
		{
			"root is a meta page",
			func(f boltFile) { put64(f.b, f.meta+element+16, 1); sum(f) },
			"invalid reference to page 1 ",
		},
		{"root outside", func(f boltFile) { put64(f.b, f.meta+element+16, 1<<40); sum(f) }, "invalid reference to page"},
		{"page of another number", func(f boltFile) { put64(f.b, f.leaf, 3) }, "has an invalid header: id 3"},
		{"overflow", func(f boltFile) { put32(f.b, f.leaf+12, 1<<30) }, "overflow pages"},
		{"overlap", func(f boltFile) { put32(f.b, f.branch+12, 30) }, "."},
		{"own ancestor", func(f boltFile) { put64(f.b, f.branch+element+8, uint64(f.branch/pageSize)) }, "referenced twice"},
		{"two parents", func(f boltFile) {
			copy(f.b[f.branch+element+8:f.branch+element+16], f.b[f.branch+2*element+8:])
		}, "."},
		{"kind", func(f boltFile) { put16(f.b, f.leaf+8, 3) }, "(flags 0x3"},
		{"free list in the tree", func(f boltFile) { put16(f.b, f.leaf+8, 0x10) }, "(flags 0x10"},
		{"empty branch", func(f boltFile) { put16(f.b, f.branch+10, 0) }, "0 elements"},
		{"too many elements", func(f boltFile) { put16(f.b, f.leaf+10, 60_000) }, "60000 elements"},
		{"key into the elements", func(f boltFile) { put32(f.b, f.leaf+element+4, 4) }, "out of bounds"},
		{"key outside", func(f boltFile) { put32(f.b, f.leaf+element+4, ^uint32(0)) }, "out of bounds"},
		{"value outside", func(f boltFile) { put32(f.b, f.leaf+element+12, 1<<31) }, "out of bounds"},
		{"key of a branch outside", func(f boltFile) { put32(f.b, f.branch+element+4, 1<<31) }, "out of bounds"},
		{"order in a leaf", func(f boltFile) {
			second := f.inlineHolder + 2*element
			f.b[second+int(binary.NativeEndian.Uint32(f.b[second+4:]))] = 'a'
		}, "key 1 is out of order"},
		{"below the parent's key", func(f boltFile) {
			last := f.branch + element*int(binary.NativeEndian.Uint16(f.b[f.branch+10:]))
			f.b[last+int(binary.NativeEndian.Uint32(f.b[last:]))]++
		}, "key 0 is out of order"},
		{"above the next key", func(f boltFile) {
			second := f.branch + 2*element
			f.b[second+int(binary.NativeEndian.Uint32(f.b[second:]))]--
		}, "is out of order"},
		{"short bucket", func(f boltFile) { put32(f.b, f.inlineHolder+2*element+12, 7) }, "bucket of 7 bytes"},
		{"short inline bucket", func(f boltFile) { put32(f.b, f.inlineHolder+2*element+12, 20) }, "inline bucket of 4 bytes"},
		{
			"kind of an inline bucket",
			func(f boltFile) { put16(f.b, f.inline+8, pageBranch) },
			"inline bucket has unexpected flags 0x1",
		},
		{"elements of an inline bucket", func(f boltFile) { put16(f.b, f.inline+10, 2) }, "2 elements"},
		{"value of an inline bucket", func(f boltFile) { put32(f.b, f.inline+element+12, 6) }, "out of bounds"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newBoltFile(t)
			test.change(f)
			path := filepath.Join(t.TempDir(), "x.db")
			if err := os.WriteFile(path, f.b, 0o600); err != nil {
				t.Fatal(err)
			}
			size, err := inspect(path)
			switch {
			case test.want == "" && (err != nil || size.Used == 0 || size.Used > size.Total || size.Total > int64(len(f.b))):
				t.Errorf("%+v %v", size, err)
			case test.want != "" && (!errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), strings.Trim(test.want, "."))):
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// A file that a tool created has a freelist, which bbolt reads. If bbolt cannot read it, the file is damaged.
func TestFreeList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, PageSize: pageSize})
	if err != nil {
		t.Fatal(err)
	}
	meta := 0
	err = db.Update(func(tx *bbolt.Tx) error {
		meta = tx.ID() % 2 * pageSize // the page that the transaction writes
		return putFormat(tx)
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path, quick)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	list := int(binary.NativeEndian.Uint64(b[meta+pageHeaderSize+32:])) * pageSize
	binary.NativeEndian.PutUint16(b[list+8:], pageLeaf)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, quick); !errors.Is(err, ErrDamaged) {
		t.Errorf("a list of another kind: %v", err)
	}
}
