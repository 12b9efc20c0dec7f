package enrich

import (
	"bytes"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/event"
)

// reader finds owners and labels in the JSON of an object. It is reused, by one goroutine; its results are valid until the
// next call.
type reader struct {
	pairs []pair
	text  []byte
}

type pair struct{ key, value []byte }

// member gives the value of an object's member; nil if b is no object, or has none of that name.
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

// text gives a JSON string; empty if the value is none.
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

// plain is text as bytes, which nearly always need no copy.
func plain(quoted []byte) []byte {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	return []byte(text(quoted))
}

// owner reads metadata.ownerReferences: the controller, or else the first.
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
		if r := named(reference); r.UID != "" {
			first, found = r, true
		}
		if controls && found {
			return first, true
		}
	}
}

// named reads what an owner reference and an object reference have in common.
func named(reference []byte) event.Owner {
	return event.Owner{
		APIVersion: text(member(reference, "apiVersion")), Kind: text(member(reference, "kind")),
		Name: text(member(reference, "name")), UID: text(member(reference, "uid")),
	}
}

// labels renders metadata.labels as a=b,c=d, in the order of the keys. A label that this can't express, which the API server
// would not take, is left out.
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
