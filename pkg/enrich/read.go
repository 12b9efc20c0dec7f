package enrich

import (
	"bytes"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// reader renders the labels of objects and reuses its buffers. It is not safe for concurrent use. A result is valid
// until the next call.
type reader struct {
	pairs []pair
	text  []byte
}

type pair struct{ key, value []byte }

// member returns the value of a member of the JSON object b. It returns nil if b is not an object or has no such
// member.
func member(b []byte, name string) []byte {
	if len(b) == 0 || b[0] != '{' {
		return nil
	}
	c := jsonscan.NewCursor(b)
	for {
		key, value, ok := c.Member()
		if !ok {
			return nil
		}
		if len(key) == len(name)+2 && string(key[1:len(key)-1]) == name {
			return value
		}
	}
}

// text decodes a JSON string. It returns an empty string if the value is not one.
func text(value []byte) string {
	if len(value) < 2 || value[0] != '"' {
		return ""
	}
	s, err := jsonscan.Unquote(value)
	if err != nil {
		return ""
	}
	return s
}

// plain returns the decoded JSON string as bytes. It aliases quoted if there are no escapes, which is nearly always so.
func plain(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(text(quoted))
}

// owner returns the owner in metadata.ownerReferences that is the controller, or else the first.
func owner(metadata []byte) (first event.Owner, found bool) {
	references := member(metadata, "ownerReferences")
	if len(references) == 0 || references[0] != '[' {
		return first, false
	}
	c := jsonscan.NewCursor(references)
	for {
		reference, ok := c.Element()
		if !ok {
			return first, found
		}
		controls := bytes.Equal(member(reference, "controller"), []byte("true"))
		if found && !controls {
			continue
		}
		if r := parseReference(reference); r.UID != "" {
			first, found = r, true
		}
		if controls && found {
			return first, true
		}
	}
}

// parseReference reads the fields that owner references and object references have in common.
func parseReference(reference []byte) event.Owner {
	return event.Owner{
		APIVersion: text(member(reference, "apiVersion")), Kind: text(member(reference, "kind")),
		Name: text(member(reference, "name")), UID: text(member(reference, "uid")),
	}
}

// labels renders metadata.labels as a=b,c=d, sorted by key. It skips labels that cannot be written in this form; the
// API server does not accept such labels.
func (r *reader) labels(metadata []byte) []byte {
	r.pairs, r.text = r.pairs[:0], r.text[:0]
	value := member(metadata, "labels")
	if len(value) == 0 || value[0] != '{' {
		return nil
	}
	c := jsonscan.NewCursor(value)
	for {
		key, value, ok := c.Member()
		if !ok {
			break
		}
		if value[0] != '"' {
			continue
		}
		if p := (pair{plain(key), plain(value)}); len(p.key) > 0 && !bytes.ContainsAny(p.key, "=,") && bytes.IndexByte(p.value, ',') < 0 {
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
