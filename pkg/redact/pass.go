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
	// macSize and tagSize are the bytes of a fingerprint: so many that two values have the same one with a chance of
	// 2^-96, and that a text which is none passes for one with 2^-32.
	macSize, tagSize = 12, 4
	// maxDepth is how deep encoding/json follows.
	maxDepth = 10_000
)

// pass goes once through the JSON of one object. What it does not replace it copies.
type pass struct {
	redactor *Redactor
	raw, out []byte
	done     int    // so much of raw is in out, or was replaced
	deep     bool   // look for lastApplied everywhere
	place    []byte // of the value: object and keys
	depth    int
}

// document is false if raw is not one JSON object.
func (p *pass) document(paths [][]step) ([]byte, bool) {
	start := jsonscan.Space(p.raw, 0)
	if start == len(p.raw) || p.raw[start] != '{' {
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

// value passes the value at raw[i] and returns the offset behind it, -1 if it has no end. paths begin at it; hide: all of it
// is to be replaced.
func (p *pass) value(i int, paths [][]step, hide bool) int {
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
	// It is no JSON, and what it means to a reader is not known.
	p.out, p.done, p.place = p.out[:out], done, p.place[:place]
	if end = jsonscan.Value(p.raw, i); end > 0 {
		p.replace(i, end)
	}
	return end
}

// entries passes the object or list that opens at raw[i]; -1 if it is none.
func (p *pass) entries(i int, paths [][]step, hide bool) int {
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
		var inner [][]step
		var hidden bool
		place := len(p.place)
		if list {
			inner, hidden = enter(paths, hide)
			p.place = append(p.place, "/*"...)
		} else {
			if p.at(i) != '"' {
				return -1
			}
			behind := jsonscan.String(p.raw, i)
			if behind < 0 {
				return -1
			}
			inner, hidden = p.member(p.raw[i:behind], paths, hide)
			if i = jsonscan.Space(p.raw, behind); p.at(i) != ':' {
				return -1
			}
			i = jsonscan.Space(p.raw, i+1)
		}
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

// at is the byte at raw[i], 0 behind the end.
func (p *pass) at(i int) byte {
	if i < len(p.raw) {
		return p.raw[i]
	}
	return 0
}

// member notes a key, given as its JSON string, and gives what follows for its value.
func (p *pass) member(quoted []byte, paths [][]step, hide bool) (inner [][]step, hidden bool) {
	key, ok := unquote(quoted)
	p.place = append(binary.AppendUvarint(append(p.place, '.'), uint64(len(key))), key...)
	hidden = hide || !ok || p.deep && bytes.EqualFold(key, p.redactor.applied)
	for _, path := range paths {
		switch {
		case !path[0].matches(key):
		case len(path) == 1:
			hidden = true
		default:
			inner = append(inner, path[1:])
		}
	}
	return inner, hidden
}

// enter gives what follows for the elements of a list. A key leads through a list to the members of its elements.
func enter(paths [][]step, hide bool) (inner [][]step, hidden bool) {
	hidden = hide
	for _, path := range paths {
		switch {
		case !path[0].all:
			inner = append(inner, path)
		case len(path) == 1:
			hidden = true
		default:
			inner = append(inner, path[1:])
		}
	}
	return inner, hidden
}

// unquote gives the text of a JSON string, which may alias the token. If it is none it gives the token, and false.
func unquote(token []byte) ([]byte, bool) {
	inner := token[1 : len(token)-1]
	for _, c := range inner {
		if c == '\\' || c >= 0x80 || c < ' ' {
			var s string
			if json.Unmarshal(token, &s) != nil {
				return token, false
			}
			return []byte(s), true
		}
	}
	return inner, true
}

// replace puts a fingerprint in the place of raw[start:end], unless that is one.
func (p *pass) replace(start, end int) {
	value, kind := p.raw[start:end], byte('j')
	if value[0] == '"' {
		if text, ok := unquote(value); ok { // however it is escaped
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

// mac makes fingerprints. Its buffer is here since what is handed to a hash.Hash is on the heap.
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

// tag tells that a sum was made with the key. The result is in the second half of the buffer.
func (m *mac) tag(sum []byte) []byte {
	second := m.buffer[len(m.buffer)/2 : len(m.buffer)/2]
	m.hash.Reset()
	m.hash.Write(append(append(second, 't'), sum...))
	return m.hash.Sum(second)[:tagSize]
}

// made reports whether a text is a fingerprint that was made with the key.
func (m *mac) made(text []byte) bool {
	digits, ok := bytes.CutPrefix(text, []byte(prefix))
	if !ok || len(digits) != 2*(macSize+tagSize) {
		return false
	}
	sum, err := hex.AppendDecode(m.buffer[:0], digits)
	return err == nil && hmac.Equal(m.tag(sum[:macSize]), sum[macSize:])
}
