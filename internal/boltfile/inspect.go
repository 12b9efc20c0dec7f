package boltfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// This file reads a bbolt file (format version 2, https://github.com/etcd-io/bbolt, internal/common) without bbolt, to
// find out whether it is sound before bbolt maps it. bbolt trusts its file: an offset that is wrong makes it read
// memory that is not its own, a page that is its own ancestor makes it run for ever, and it walks the tree in a
// goroutine whose panics nobody can catch. Here every page is read into a buffer, and nothing is followed that was
// not checked.
//
// What is checked: the meta pages' checksums, and of each page that the newest sound meta page reaches, that it lies
// within the file, is the page that it should be, is referenced once, holds its elements within its bounds, and has
// its keys in ascending order within what its parent says. Values are not looked at; they have checksums.

const (
	boltMagic      = 0xED0CDAED
	boltVersion    = 2
	boltNoFreelist = ^uint64(0)

	pageHeaderSize = 16 // id uint64, flags uint16, count uint16, overflow uint32
	elementSize    = 16 // of a branch: pos, ksize uint32, pgid uint64; of a leaf: flags, pos, ksize, vsize uint32
	bucketSize     = 16 // root uint64, sequence uint64
	metaSize       = 64
	metaSummed     = 56 // what of it the checksum covers

	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10
	leafBucket   = 0x01 // flag of an element

	minPageSize, maxPageSize = 1 << 10, 1 << 24 // what bbolt itself looks for
	maxDepth                 = 64               // of pages; a sound tree of 2^31 rows has fewer than 32
)

// Usage is how many bytes of a file hold something.
type Usage struct{ Used, Total int64 }

// inspection is one walk through a file.
type inspection struct {
	file     *os.File
	pageSize int64
	pages    uint64 // the first page that is none
	seen     []bool // by page
	used     int64  // pages
	buffers  [maxDepth][]byte
}

func inspectFile(path string, o Options) (Usage, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Usage{}, err
	}
	if !info.Mode().IsRegular() {
		return Usage{}, fmt.Errorf("not a regular file (%s)", info.Mode().Type())
	}
	flag := os.O_RDWR
	if o.ReadOnly {
		flag = os.O_RDONLY
	}
	file, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return Usage{}, err
	}
	defer file.Close()
	return inspect(file)
}

// inspect walks through a bbolt file. An error that wraps ErrDamaged is about what is in the file; any other is about
// reading it.
func inspect(file *os.File) (Usage, error) {
	info, err := file.Stat()
	if err != nil {
		return Usage{}, err
	}
	m, err := newestMeta(file)
	if err != nil {
		return Usage{}, err
	}
	if m.pages < 4 || m.pages > uint64(info.Size()/m.pageSize) {
		return Usage{}, fmt.Errorf("%w: %d pages of %d bytes in a file of %d bytes", ErrDamaged, m.pages, m.pageSize, info.Size())
	}
	// The walk goes from page to page all over the file, and so does bbolt after it. Where pages come from a disk
	// far away, reading all of it in one go first is much faster.
	if _, err := io.Copy(io.Discard, io.NewSectionReader(file, 0, info.Size())); err != nil {
		return Usage{}, err
	}
	in := &inspection{file: file, pageSize: m.pageSize, pages: m.pages, seen: make([]bool, m.pages), used: 2}
	if err := in.tree(m.root, nil, nil, 0); err != nil {
		return Usage{}, err
	}
	if m.freelist != boltNoFreelist { // an empty file has one, and one that a tool made
		if err := in.freelist(m.freelist); err != nil {
			return Usage{}, err
		}
	}
	return Usage{in.used * m.pageSize, int64(m.pages) * m.pageSize}, nil
}

type boltMeta struct {
	pageSize                    int64
	root, freelist, pages, txid uint64
}

// newestMeta finds the meta page that bbolt would use: of the sound ones that with the higher transaction. The first
// tells where the second is; if it can't, each place where it may be is tried.
func newestMeta(file *os.File) (newest boltMeta, err error) {
	newest, first := metaAt(file, 0)
	if first != nil && !errors.Is(first, ErrDamaged) {
		return newest, first
	}
	for at := int64(minPageSize); at <= maxPageSize; at *= 2 {
		if first == nil && at != newest.pageSize {
			continue
		}
		second, err := metaAt(file, at)
		switch {
		case errors.Is(err, ErrDamaged):
		case err != nil:
			return newest, err
		case first == nil && second.pageSize != newest.pageSize:
			return newest, fmt.Errorf("%w: the meta pages differ in the size of pages", ErrDamaged)
		case first != nil && second.pageSize == at, first == nil && second.txid > newest.txid:
			return second, nil
		}
	}
	return newest, first
}

func metaAt(file *os.File, at int64) (boltMeta, error) {
	var page [pageHeaderSize + metaSize]byte
	if _, err := file.ReadAt(page[:], at); errors.Is(err, io.EOF) {
		return boltMeta{}, fmt.Errorf("%w: the file is too short", ErrDamaged)
	} else if err != nil {
		return boltMeta{}, err
	}
	b, order := page[pageHeaderSize:], binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	switch {
	case order.Uint32(b) != boltMagic:
		return boltMeta{}, fmt.Errorf("%w: no bbolt file", ErrDamaged)
	case order.Uint32(b[4:]) != boltVersion:
		return boltMeta{}, fmt.Errorf("%w: bbolt file of version %d", ErrDamaged, order.Uint32(b[4:]))
	case order.Uint64(b[metaSummed:]) != sum.Sum64():
		return boltMeta{}, fmt.Errorf("%w: checksum of the meta page is wrong", ErrDamaged)
	}
	m := boltMeta{
		pageSize: int64(order.Uint32(b[8:])), root: order.Uint64(b[16:]),
		freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:]),
	}
	if m.pageSize < minPageSize || m.pageSize > maxPageSize || m.pageSize&(m.pageSize-1) != 0 {
		return boltMeta{}, fmt.Errorf("%w: pages of %d bytes", ErrDamaged, m.pageSize)
	}
	return m, nil
}

// boltPage is a page with what follows it. Its elements are checked by elements.
type boltPage struct {
	id    uint64
	flags uint16
	count int
	b     []byte // with the header
}

// page reads a page. It is valid until another one is read at that depth.
func (in *inspection) page(id uint64, depth int) (boltPage, error) {
	if id < 2 || id >= in.pages {
		return boltPage{}, fmt.Errorf("%w: page %d of %d", ErrDamaged, id, in.pages)
	}
	at, order := int64(id)*in.pageSize, binary.NativeEndian
	b := slices.Grow(in.buffers[depth][:0], int(in.pageSize))[:in.pageSize]
	if err := in.read(b, at); err != nil {
		return boltPage{}, err
	}
	self, more := order.Uint64(b), uint64(order.Uint32(b[12:]))
	if self != id || more >= in.pages-id {
		return boltPage{}, fmt.Errorf("%w: page %d says that it is page %d and %d more", ErrDamaged, id, self, more)
	}
	for i := id; i <= id+more; i++ {
		if in.seen[i] {
			return boltPage{}, fmt.Errorf("%w: page %d is referenced twice", ErrDamaged, i)
		}
		in.seen[i] = true
	}
	in.used += int64(more) + 1
	b = slices.Grow(b, int(more)*int(in.pageSize))[:(int(more)+1)*int(in.pageSize)]
	in.buffers[depth] = b
	return boltPage{id, order.Uint16(b[8:]), int(order.Uint16(b[10:])), b}, in.read(b[in.pageSize:], at+in.pageSize)
}

func (in *inspection) read(b []byte, at int64) error {
	_, err := in.file.ReadAt(b, at)
	if errors.Is(err, io.EOF) { // somebody cut it off just now
		return fmt.Errorf("%w: the file is too short", ErrDamaged)
	}
	return err
}

// freelist checks that the free pages are free. The tree must have been walked through before.
func (in *inspection) freelist(id uint64) error {
	p, err := in.page(id, 0)
	if err != nil {
		return err
	}
	ids := p.b[pageHeaderSize:]
	count := uint64(p.count)
	if count == 0xFFFF { // the count did not fit and stands in front of the ids
		count = binary.NativeEndian.Uint64(ids)
		ids = ids[8:]
	}
	if p.flags != pageFreelist || count > uint64(len(ids)/8) {
		return fmt.Errorf("%w: page %d is no list of free pages", ErrDamaged, id)
	}
	for i := range count {
		free := binary.NativeEndian.Uint64(ids[8*i:])
		if free < 2 || free >= in.pages || in.seen[free] {
			return fmt.Errorf("%w: page %d says that page %d is free", ErrDamaged, id, free)
		}
		in.seen[free] = true
	}
	return nil
}

// tree checks the page and all below it. Its keys are not below low and are below high; nil: no bound.
func (in *inspection) tree(id uint64, low, high []byte, depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("%w: more than %d pages deep", ErrDamaged, maxDepth)
	}
	p, err := in.page(id, depth)
	if err != nil {
		return err
	}
	switch {
	case p.flags == pageLeaf:
		return in.leaf(p, low, high, depth)
	case p.flags == pageBranch && p.count > 0:
		return in.branch(p, low, high, depth)
	}
	return fmt.Errorf("%w: page %d has flags %#x and %d elements", ErrDamaged, id, p.flags, p.count)
}

func (in *inspection) branch(p boltPage, low, high []byte, depth int) error {
	if err := p.keys(low, high); err != nil {
		return err
	}
	for i := range p.count {
		key, element := p.element(i)
		below := high
		if i+1 < p.count {
			below, _ = p.element(i + 1)
		}
		if err := in.tree(binary.NativeEndian.Uint64(element[8:]), key, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks the values that are buckets, and what is in them.
func (in *inspection) leaf(p boltPage, low, high []byte, depth int) error {
	if err := p.keys(low, high); err != nil {
		return err
	}
	for i := range p.count {
		value, isBucket := p.value(i)
		if !isBucket {
			continue
		}
		if len(value) < bucketSize {
			return fmt.Errorf("%w: page %d: bucket of %d bytes", ErrDamaged, p.id, len(value))
		}
		root := binary.NativeEndian.Uint64(value)
		var err error
		if root != 0 {
			err = in.tree(root, nil, nil, depth+1)
		} else {
			err = in.inline(p.id, value[bucketSize:], depth)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// inline checks a bucket that stands within the page of its parent.
func (in *inspection) inline(id uint64, b []byte, depth int) error {
	if len(b) < pageHeaderSize || depth+1 == maxDepth {
		return fmt.Errorf("%w: page %d: inline bucket of %d bytes", ErrDamaged, id, len(b))
	}
	order := binary.NativeEndian
	p := boltPage{id, order.Uint16(b[8:]), int(order.Uint16(b[10:])), b}
	if p.flags != pageLeaf {
		return fmt.Errorf("%w: page %d: inline bucket with flags %#x", ErrDamaged, id, p.flags)
	}
	return in.leaf(p, nil, nil, depth+1)
}

// keys checks that all elements lie within the page, and their keys within the bounds and in ascending order.
func (p boltPage) keys(low, high []byte) error {
	if pageHeaderSize+p.count*elementSize > len(p.b) {
		return fmt.Errorf("%w: page %d: %d elements", ErrDamaged, p.id, p.count)
	}
	for i := range p.count {
		if !p.inBounds(i) {
			return fmt.Errorf("%w: page %d: element %d is out of bounds", ErrDamaged, p.id, i)
		}
		key, _ := p.element(i)
		if i == 0 && low != nil && bytes.Compare(key, low) < 0 || i > 0 && bytes.Compare(key, low) <= 0 ||
			high != nil && bytes.Compare(key, high) >= 0 {
			return fmt.Errorf("%w: page %d: key %d is out of order", ErrDamaged, p.id, i)
		}
		low = key
	}
	return nil
}

// inBounds reports whether key and value of an element are behind the elements and within the page.
func (p boltPage) inBounds(i int) bool {
	at := pageHeaderSize + i*elementSize
	e, order := p.b[at:], binary.NativeEndian
	start, size := uint64(at)+uint64(order.Uint32(e)), uint64(order.Uint32(e[4:]))
	if p.flags == pageLeaf {
		start, size = uint64(at)+uint64(order.Uint32(e[4:])), uint64(order.Uint32(e[8:]))+uint64(order.Uint32(e[12:]))
	}
	return start >= uint64(pageHeaderSize+p.count*elementSize) && start+size <= uint64(len(p.b))
}

// element gives the key of an element of a page that keys found sound, and the element from its start on.
func (p boltPage) element(i int) (key, element []byte) {
	element = p.b[pageHeaderSize+i*elementSize:]
	pos, size := element, element[4:]
	if p.flags == pageLeaf {
		pos, size = element[4:], element[8:]
	}
	start := binary.NativeEndian.Uint32(pos)
	return element[start : start+binary.NativeEndian.Uint32(size)], element
}

// value gives that of an element of a leaf that keys found sound.
func (p boltPage) value(i int) (value []byte, isBucket bool) {
	element := p.b[pageHeaderSize+i*elementSize:]
	order := binary.NativeEndian
	start := order.Uint32(element[4:]) + order.Uint32(element[8:])
	return element[start : start+order.Uint32(element[12:])], order.Uint32(element)&leafBucket != 0
}
