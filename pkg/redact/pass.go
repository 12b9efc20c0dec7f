package redact

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

const (
	prefix = "hmac-sha256:"
	// macSize and tagSize are the two parts of a fingerprint, in bytes. Two values have the same fingerprint with a
	// probability of 2^-96. A string that is not a fingerprint is taken for one with a probability of 2^-32.
	macSize, tagSize = 12, 4
	// maxDepth is the depth that encoding/json accepts.
	maxDepth = 10_000
)

// pass goes once through the JSON of one object, and copies what it does not replace.
type pass struct {
	redactor *Redactor
	raw, out []byte
	done     int    // raw[:done] is in out, or was replaced
	deep     bool   // look for lastApplied everywhere
	place    []byte // place of the current value: object and keys
	depth    int
}

// document redacts the whole object. It returns false if raw is not one JSON object.
func (p *pass) document(paths []Path) ([]byte, bool) {
	start := jsonscan.Space(p.raw, 0)
	if p.at(start) != '{' {
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

// value redacts the value at raw[i] and returns the offset after it, or -1 if it does not end. paths begin at the
// value. If hide is set, everything in it is replaced.
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
	// The value is not valid JSON, and readers may interpret it differently: replace it as a whole.
	p.out, p.done, p.place = p.out[:out], done, p.place[:place]
	if end = jsonscan.Value(p.raw, i); end > 0 {
		p.replace(i, end)
	}
	return end
}

// entries redacts the object or list that opens at raw[i], and returns the offset after it, or -1 if it is invalid.
func (p *pass) entries(i int, paths []Path, hide bool) int {
	list, end := p.raw[i] == '[', byte('}')
	if list {
		end = ']'
	}
	if p.depth > maxDepth {
		return -1
	}
	i = jsonscan.Space(p.raw, i+1)
	if p.at(i) == end {
		return i + 1
	}
	for {
		var key []byte
		place, hidden := len(p.place), hide
		if list {
			p.place = append(p.place, "/*"...)
		} else {
			if p.at(i) != '"' {
				return -1
			}
			after := jsonscan.String(p.raw, i)
			if after < 0 {
				return -1
			}
			var valid bool
			key, valid = unquote(p.raw[i:after])
			hidden = hide || !valid || p.deep && bytes.EqualFold(key, p.redactor.applied)
			p.place = append(binary.AppendUvarint(append(p.place, '.'), uint64(len(key))), key...)
			if i = jsonscan.Space(p.raw, after); p.at(i) != ':' {
				return -1
			}
			i = jsonscan.Space(p.raw, i+1)
		}
		inner, ends := follow(paths, key, list)
		hidden = hidden || ends
		if i = p.value(i, inner, hidden); i < 0 {
			return -1
		}
		p.place = p.place[:place]
		i = jsonscan.Space(p.raw, i)
		switch p.at(i) {
		case end:
			return i + 1
		case ',':
			i = jsonscan.Space(p.raw, i+1)
		default:
			return -1
		}
	}
}

// at returns raw[i], or 0 after the end.
func (p *pass) at(i int) byte {
	if i < len(p.raw) {
		return p.raw[i]
	}
	return 0
}

// follow returns the paths that lead on into a member, or into the elements of a list, and whether a path ends there. A
// key leads through a list to the members of its elements.
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

// unquote returns the text of a JSON string, which may alias the token. If the token is not a valid string, it returns
// the token and false.
func unquote(token []byte) ([]byte, bool) {
	inner := token[1 : len(token)-1]
	if jsonscan.IsPlain(inner) {
		return inner, true
	}
	var s string
	if json.Unmarshal(token, &s) != nil {
		return token, false
	}
	return []byte(s), true
}

// replace replaces raw[start:end] with a fingerprint, unless it already is one.
func (p *pass) replace(start, end int) {
	value, kind := p.raw[start:end], byte('j')
	if value[0] == '"' {
		if text, ok := unquote(value); ok { // the escapes do not matter
			value, kind = text, 's'
		}
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

// mac makes fingerprints. It has a buffer because arguments of a hash.Hash are always on the heap.
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

// tag returns a proof that a sum was made with the key, in the second half of the buffer.
func (m *mac) tag(sum []byte) []byte {
	second := m.buffer[len(m.buffer)/2 : len(m.buffer)/2]
	m.hash.Reset()
	m.hash.Write(append(append(second, 't'), sum...))
	return m.hash.Sum(second)[:tagSize]
}

// made reports whether a text is a fingerprint made with the key.
func (m *mac) made(text []byte) bool {
	digits, ok := bytes.CutPrefix(text, []byte(prefix))
	if !ok || len(digits) != 2*(macSize+tagSize) {
		return false
	}
	sum, err := hex.AppendDecode(m.buffer[:0], digits)
	return err == nil && hmac.Equal(m.tag(sum[:macSize]), sum[macSize:])
}
