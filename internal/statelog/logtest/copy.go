package logtest

import (
	"maps"
	"slices"

	"github.com/deltabridge/deltabridge/internal/statelog"
)

// Copy is a local copy in memory.
type Copy struct {
	// Fail, if not nil, is the error that every change returns.
	Fail error
	// Resets counts calls of Reset.
	Resets int

	content Content
	at      statelog.Point
}

// Content is what a log and a copy contain.
type Content map[Key]string

// Key identifies a value.
type Key struct{ Bucket, Source, Key string }

// NewCopy returns a copy that was not made from a log.
func NewCopy(content Content) *Copy { return &Copy{content: maps.Clone(content)} }

// Clone returns a copy with the same content and point.
func (c *Copy) Clone() *Copy { return &Copy{content: maps.Clone(c.content), at: c.at} }

// Content returns the content. The caller must not change it.
func (c *Copy) Content() Content { return c.content }

// Apply applies pairs.
func (c Content) Apply(pairs []statelog.Pair) {
	for _, p := range pairs {
		switch {
		case p.Value != nil:
			c[Key{p.Bucket, p.Source, p.Key}] = string(p.Value)
		case p.Key != "":
			delete(c, Key{p.Bucket, p.Source, p.Key})
		default:
			maps.DeleteFunc(c, func(k Key, _ string) bool { return k.Bucket == p.Bucket && k.Source == p.Source })
		}
	}
}

// Point implements statelog.Copy.
func (c *Copy) Point() statelog.Point { return c.at }

// Apply implements statelog.Copy.
func (c *Copy) Apply(pairs []statelog.Pair, at statelog.Point) error {
	if c.Fail != nil {
		return c.Fail
	}
	if c.content == nil {
		c.content = Content{}
	}
	c.content.Apply(pairs)
	c.at = at
	return nil
}

// Reset implements statelog.Copy.
func (c *Copy) Reset() error {
	if c.Fail != nil {
		return c.Fail
	}
	c.content, c.at = nil, statelog.Point{}
	c.Resets++
	return nil
}

// Next implements statelog.Source.
func (c *Copy) Next(cursor string, maxBytes int) (pairs []statelog.Pair, next string, done bool, err error) {
	name := func(k Key) string { return k.Bucket + "\x00" + k.Source + "\x00" + k.Key }
	keys := slices.SortedFunc(maps.Keys(c.content), func(a, b Key) int {
		if name(a) < name(b) {
			return -1
		}
		return 1
	})
	bytes := 0
	for _, k := range keys {
		if name(k) <= cursor {
			continue
		}
		if bytes >= maxBytes {
			return pairs, next, false, nil
		}
		pairs = append(pairs, statelog.Pair{Bucket: k.Bucket, Source: k.Source, Key: k.Key, Value: []byte(c.content[k])})
		bytes += len(k.Source) + len(k.Key) + len(c.content[k])
		next = name(k)
	}
	return pairs, next, true, nil
}
