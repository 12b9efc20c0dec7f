package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// This file reads a bbolt file (format version 2, https://github.com/etcd-io/bbolt, internal/common) without bbolt, to
// detect damage before bbolt maps the file. bbolt does not validate its file: a wrong offset makes it read memory
// outside of the file, and a page that is its own ancestor makes it run until memory is exhausted. In addition, bbolt
// walks the tree in a goroutine, and the caller cannot recover from a panic there. The functions in this file read
// every page into a buffer, and follow a reference only after checking it.
//
// The meta pages must have valid checksums. Every page that can be reached from the newest valid meta page must be
// within the file, contain its own page number and be referenced only once. The page's elements must be within the
// page, and all keys of a bucket must be in ascending order. Values are not checked, because they have their own
// checksums. The freelist is not checked, because the bridge does not write one (NoFreelistSync).

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeaderSize = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize    = 16 // in a branch: pos, ksize uint32, pgid uint64; in a leaf: flags, pos, ksize, vsize uint32
	bucketSize     = 16 // root uint64, sequence uint64
	metaSize       = 64
	metaSummed     = 56 // number of bytes that the checksum covers

	pageBranch = 0x01
	pageLeaf   = 0x02
	leafBucket = 0x01 // flag of an element that is a bucket
)

// Usage contains the number of bytes in use and the total number of bytes of a file.
type Usage struct{ Used, Total int64 }

// inspection is the state of one walk through a file.
type inspection struct {
	file  *os.File
	pages uint64 // number of pages
	seen  []bool // by page number
	used  int64  // number of pages
}

// inspect walks through a bbolt file. If the content of the file is damaged, the error wraps ErrDamaged. Otherwise, the
// file could not be read.
func inspect(path string) (Usage, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Usage{}, err
	}
	if !info.Mode().IsRegular() {
		return Usage{}, fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	}
	file, err := os.Open(path)
	if err != nil {
		return Usage{}, err
	}
	defer file.Close()
	m, err := newestMeta(file)
	if err != nil {
		return Usage{}, err
	}
	if m.Pages < 4 || m.Pages > uint64(info.Size()/pageSize) {
		return Usage{}, damaged("impossible size: %d pages of %d bytes in a file of %d bytes", m.Pages, pageSize, info.Size())
	}
	// Both this walk and bbolt access pages in random order. If the disk is slow, it is much faster to read the whole file
	// sequentially first.
	if _, err := io.Copy(io.Discard, io.NewSectionReader(file, 0, info.Size())); err != nil {
		return Usage{}, err
	}
	in := &inspection{file: file, pages: m.Pages, seen: make([]bool, m.Pages), used: 2}
	if err := in.tree(m.Root, &keyOrder{}); err != nil {
		return Usage{}, err
	}
	return Usage{in.used * pageSize, int64(m.Pages) * pageSize}, nil
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// boltMeta is the content of a meta page, which follows the page header in the file.
type boltMeta struct {
	Magic, Version, PageSize, Flags            uint32
	Root, Sequence, Freelist, Pages, Txid, Sum uint64
}

// newestMeta returns the meta page that bbolt would use: the valid meta page with the highest transaction id.
func newestMeta(file *os.File) (newest boltMeta, err error) {
	var problem error
	for at := int64(0); at <= pageSize; at += pageSize {
		m, err := metaAt(file, at)
		switch {
		case errors.Is(err, ErrDamaged):
			problem = err
		case err != nil:
			return newest, err
		case m.PageSize != pageSize:
			return newest, damaged("unsupported page size of %d bytes", m.PageSize)
		case newest.Magic == 0 || m.Txid > newest.Txid:
			newest = m
		}
	}
	if newest.Magic == 0 {
		return newest, problem
	}
	return newest, nil
}

func metaAt(file *os.File, at int64) (m boltMeta, err error) {
	var b [metaSize]byte
	if _, err := file.ReadAt(b[:], at+pageHeaderSize); errors.Is(err, io.EOF) {
		return m, damaged("the file is too short")
	} else if err != nil {
		return m, err
	}
	_, _ = binary.Decode(b[:], binary.NativeEndian, &m) // cannot fail: b has the size of boltMeta
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	switch {
	case m.Magic != boltMagic:
		err = damaged("not a bbolt file")
	case m.Version != boltVersion:
		err = damaged("unsupported bbolt version %d", m.Version)
	case m.Sum != sum.Sum64():
		err = damaged("checksum of the meta page is wrong")
	}
	return m, err
}

// boltPage is a page with its overflow pages, or an inline bucket. Its elements are not checked yet.
type boltPage struct {
	id    uint64
	flags uint16
	count int
	b     []byte // includes the header
}

func newPage(id uint64, b []byte) boltPage {
	return boltPage{id, binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:])), b}
}

// page reads a page.
func (in *inspection) page(id uint64) (p boltPage, err error) {
	if id < 2 || id >= in.pages {
		return p, damaged("invalid reference to page %d (the file has %d pages)", id, in.pages)
	}
	at, b := int64(id)*pageSize, make([]byte, pageSize)
	if err := in.read(b, at); err != nil {
		return p, err
	}
	self, more := binary.NativeEndian.Uint64(b), uint64(binary.NativeEndian.Uint32(b[12:]))
	if self != id || more >= in.pages-id {
		return p, damaged("page %d has an invalid header: id %d, %d overflow pages", id, self, more)
	}
	for i := id; i <= id+more; i++ {
		if in.seen[i] {
			return p, damaged("page %d is referenced twice", i)
		}
		in.seen[i] = true
	}
	in.used += int64(more) + 1
	b = append(b, make([]byte, more*pageSize)...)
	return newPage(id, b), in.read(b[pageSize:], at+pageSize)
}

func (in *inspection) read(b []byte, at int64) error {
	_, err := in.file.ReadAt(b, at)
	if errors.Is(err, io.EOF) { // the file was truncated during the walk
		return damaged("the file is too short")
	}
	return err
}

// keyOrder checks that the keys of one bucket are in ascending order.
type keyOrder struct {
	last  []byte // nil before the first key
	above bool   // last is the key of a branch element, and the first key below it may be the same
}

func (o *keyOrder) follows(key []byte, above bool) bool {
	order := bytes.Compare(key, o.last)
	ok := o.last == nil || order > 0 || order == 0 && o.above
	o.last, o.above = key, above
	return ok
}

// tree checks a page and all pages below it. The walk ends, because no page is read twice.
func (in *inspection) tree(id uint64, order *keyOrder) error {
	p, err := in.page(id)
	if err != nil {
		return err
	}
	if p.flags != pageLeaf && (p.flags != pageBranch || p.count == 0) {
		return damaged("page %d is not a valid leaf or branch page (flags %#x, %d elements)", id, p.flags, p.count)
	}
	return in.elements(p, order)
}

// elements checks the elements of a page and all pages below them.
func (in *inspection) elements(p boltPage, order *keyOrder) error {
	if pageHeaderSize+p.count*elementSize > len(p.b) {
		return damaged("page %d: %d elements do not fit into the page", p.id, p.count)
	}
	for i := range p.count {
		e, ok := p.element(i)
		if !ok {
			return damaged("page %d: element %d is out of bounds", p.id, i)
		}
		if !order.follows(e.key, p.flags == pageBranch) {
			return damaged("page %d: key %d is out of order", p.id, i)
		}
		var err error
		switch {
		case p.flags == pageBranch:
			err = in.tree(e.child, order)
		case e.flags&leafBucket != 0:
			err = in.bucket(p.id, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks a value that is a bucket. A small bucket consists of a single page, which the value contains.
func (in *inspection) bucket(id uint64, value []byte) error {
	if len(value) < bucketSize {
		return damaged("page %d: a bucket of %d bytes is too short", id, len(value))
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return in.tree(root, &keyOrder{})
	}
	inline := value[bucketSize:]
	if len(inline) < pageHeaderSize {
		return damaged("page %d: an inline bucket of %d bytes is too short", id, len(inline))
	}
	p := newPage(id, inline)
	if p.flags != pageLeaf {
		return damaged("page %d: an inline bucket has unexpected flags %#x", id, p.flags)
	}
	return in.elements(p, &keyOrder{})
}

// element is an element of a page: the key and child page of a branch element, or the key and value of a leaf element.
type element struct {
	flags      uint32
	child      uint64
	key, value []byte
}

// element returns an element. ok is false if the element's key and value are not within the page, after the array of
// elements.
func (p boltPage) element(i int) (e element, ok bool) {
	at, order := pageHeaderSize+i*elementSize, binary.NativeEndian
	b := p.b[at:]
	offset, keySize, valueSize := order.Uint32(b), order.Uint32(b[4:]), uint32(0)
	if p.flags == pageLeaf {
		e.flags, offset, keySize, valueSize = offset, keySize, order.Uint32(b[8:]), order.Uint32(b[12:])
	} else {
		e.child = order.Uint64(b[8:])
	}
	start := uint64(at) + uint64(offset)
	middle := start + uint64(keySize)
	end := middle + uint64(valueSize)
	if start < uint64(pageHeaderSize+p.count*elementSize) || end > uint64(len(p.b)) {
		return e, false
	}
	e.key, e.value = p.b[start:middle], p.b[middle:end]
	return e, true
}
