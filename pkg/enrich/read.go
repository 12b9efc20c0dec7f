package enrich

import (
	"bytes"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// reader renders the labels of objects and reuses its buffers. It is not safe for concurrent use. Each result is valid
// only until the next call.
type reader struct {
	pairs []pair
	text  []byte
}

type pair struct{ key, value []byte }

// member returns the value of a member of the JSON object b. It returns nil if b is not an object or does not have the
// member.
func member(b []byte, name string) []byte {
	if len(b) == 0 || b[0] != '{' {
		return nil
	}
	c := jsonscan.NewCursor(b)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		if string(key[1:len(key)-1]) == name {
			return value
		}
	}
	return nil
}

// text decodes a JSON string. It returns nil if the value is not a string. The result aliases the value unless the
// value contains escapes, which is rare.
func text(value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return nil
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return value[1 : len(value)-1]
	}
	s, _ := jsonscan.Unquote(value) // s is empty if the value is invalid
	return []byte(s)
}

// owner returns the controller in metadata.ownerReferences. If no reference is a controller, owner returns the first
// reference.
func owner(metadata []byte) (first event.Owner, found bool) {
	references := member(metadata, "ownerReferences")
	if len(references) == 0 || references[0] != '[' {
		return first, false
	}
	c := jsonscan.NewCursor(references)
	for reference, ok := c.Element(); ok; reference, ok = c.Element() {
		controls := string(member(reference, "controller")) == "true"
		if r := parseReference(reference); r.UID != "" && (controls || !found) {
			first, found = r, true
		}
		if controls && found {
			break
		}
	}
	return first, found
}

// parseReference reads the fields that both owner references and object references have.
func parseReference(reference []byte) event.Owner {
	read := func(name string) string { return string(text(member(reference, name))) }
	return event.Owner{APIVersion: read("apiVersion"), Kind: read("kind"), Name: read("name"), UID: read("uid")}
}

// labels renders metadata.labels as a=b,c=d, sorted by key. It skips labels that cannot be rendered in this form; the
// API server does not accept such labels.
func (r *reader) labels(metadata []byte) []byte {
	r.pairs, r.text = r.pairs[:0], r.text[:0]
	value := member(metadata, "labels")
	if len(value) == 0 || value[0] != '{' {
		return nil
	}
	c := jsonscan.NewCursor(value)
	for key, value, ok := c.Member(); ok; key, value, ok = c.Member() {
		p := pair{text(key), text(value)}
		if value[0] == '"' && len(p.key) > 0 && !bytes.ContainsAny(p.key, "=,") && bytes.IndexByte(p.value, ',') < 0 {
			r.pairs = append(r.pairs, p)
		}
	}
	slices.SortStableFunc(r.pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	for _, p := range r.pairs {
		if len(r.text) > 0 {
			r.text = append(r.text, ',')
		}
		r.text = append(append(append(r.text, p.key...), '='), p.value...)
	}
	return r.text
}
