package redact

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

const (
	prefix = "hmac-sha256:"
	// macSize and tagSize are the sizes of the two parts of a fingerprint, in bytes. The probability that two values have
	// the same fingerprint is 2^-96. The probability that a string is mistaken for a fingerprint is 2^-32.
	macSize, tagSize = 12, 4
	// maxDepth is the maximum depth that encoding/json accepts.
	maxDepth = 10_000
)

// pass scans the JSON of one object once, and copies the parts that it does not replace.
type pass struct {
	redactor *Redactor
	raw, out []byte
	done     int    // raw[:done] is in out or has been replaced
	deep     bool   // look for lastApplied at every depth
	place    []byte // location of the current value: the object and the keys
	depth    int
}

// document redacts the whole object. It returns false if raw is not a single JSON object.
func (p *pass) document(paths []Path) ([]byte, bool) { return p.all('{', paths) }

// all redacts the whole value. It returns false if raw is not a single JSON value that starts with the bracket.
func (p *pass) all(bracket byte, paths []Path) ([]byte, bool) {
	start := jsonscan.Space(p.raw, 0)
	if start == len(p.raw) || p.raw[start] != bracket {
		return nil, false
	}
	end := p.entries(start, paths, false)
	if end < 0 || jsonscan.Space(p.raw, end) != len(p.raw) {
		return nil, false
	}
	if p.done == 0 {
		return p.raw, true
	}
	return append(p.out, p.raw[p.done:]...), true
}

// value redacts the value at raw[i] and returns the offset after the value, or -1 if the value is incomplete. paths are
// relative to the value. If hide is set, the whole value is hidden.
func (p *pass) value(i int, paths []Path, hide bool) int {
	if i >= len(p.raw) {
		return -1
	}
	nested := p.raw[i] == '{' || p.raw[i] == '['
	if !nested || len(paths) == 0 && !hide && !p.deep {
		end := jsonscan.Value(p.raw, i)
		if hide && end > 0 && !bytes.Equal(p.raw[i:end], []byte("null")) {
			p.replace(i, end)
		}
		return end
	}
	out, done, place := len(p.out), p.done, len(p.place)
	p.depth++
	end := p.entries(i, paths, hide)
	p.depth--
	if end >= 0 {
		return end
	}
	// The value is not valid JSON, and parsers may read it differently, so replace it as a whole.
	p.out, p.done, p.place = p.out[:out], done, p.place[:place]
	if end = jsonscan.Value(p.raw, i); end > 0 {
		p.replace(i, end)
	}
	return end
}

// entries redacts the object or list that starts at raw[i]. It returns the offset after the object or list, or -1 if
// the JSON is invalid.
func (p *pass) entries(i int, paths []Path, hide bool) int {
	if p.depth > maxDepth {
		return -1
	}
	list := p.raw[i] == '['
	w := jsonscan.Open(p.raw, i, p.raw[i])
	for w.Next() {
		place, hidden := len(p.place), hide
		if list {
			p.place = append(p.place, "/*"...)
		} else {
			hidden = hide || w.Key == nil || p.deep && bytes.EqualFold(w.Key, []byte(lastApplied))
			p.place = append(binary.AppendUvarint(append(p.place, '.'), uint64(len(w.Key))), w.Key...)
		}
		inner, ends := follow(paths, w.Key, list)
		w.Leave(p.value(w.Pos, inner, hidden || ends))
		p.place = p.place[:place]
	}
	return w.End()
}

// follow returns the remaining paths that lead further into a member or into list elements, and whether a path ends
// there. A key in a path leads through a list to the members of the list's elements.
func follow(paths []Path, key []byte, list bool) (inner []Path, ends bool) {
	for _, path := range paths {
		switch {
		case list && !path.all():
			inner = append(inner, path)
		case !list && !path.all() && !path.is(0, key):
		case len(path) == 1:
			ends = true
		default:
			inner = append(inner, path[1:])
		}
	}
	return inner, ends
}

// replace replaces raw[start:end] with a fingerprint, unless the value already is a fingerprint.
func (p *pass) replace(start, end int) {
	value, kind := p.raw[start:end], byte('j')
	if text := jsonscan.Text(value); text != nil { // equal strings have equal fingerprints, however they are escaped
		value, kind = text, 's'
	}
	mac := p.redactor.macs.Get().(*mac)
	defer p.redactor.macs.Put(mac)
	if kind == 's' && mac.made(value) {
		return
	}
	p.out = append(append(p.out, p.raw[p.done:start]...), '"')
	p.out = append(mac.appendFingerprint(p.out, p.place, kind, value), '"')
	p.done = end
}

// mac computes fingerprints. It has a buffer because the arguments of a hash.Hash always escape to the heap.
type mac struct {
	hash   hash.Hash
	buffer [128]byte
}

func (m *mac) appendFingerprint(dst, place []byte, kind byte, value []byte) []byte {
	m.hash.Reset()
	m.hash.Write(append(binary.AppendUvarint(append(m.buffer[:0], 'v'), uint64(len(place))), kind))
	m.hash.Write(place)
	m.hash.Write(value)
	sum := m.hash.Sum(m.buffer[:0])[:macSize]
	sum = append(sum, m.tag(sum)...)
	return hex.AppendEncode(append(dst, prefix...), sum)
}

// tag returns a proof that sum was computed with the key. The proof is stored in the second half of the buffer.
func (m *mac) tag(sum []byte) []byte {
	second := m.buffer[len(m.buffer)/2 : len(m.buffer)/2]
	m.hash.Reset()
	m.hash.Write(append(append(second, 't'), sum...))
	return m.hash.Sum(second)[:tagSize]
}

// made reports whether the text is a fingerprint that was created with the key.
func (m *mac) made(text []byte) bool {
	digits, ok := bytes.CutPrefix(text, []byte(prefix))
	if !ok || len(digits) != 2*(macSize+tagSize) {
		return false
	}
	sum, err := hex.AppendDecode(m.buffer[:0], digits)
	return err == nil && hmac.Equal(m.tag(sum[:macSize]), sum[macSize:])
}
