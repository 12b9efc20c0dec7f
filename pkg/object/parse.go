package object

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unique"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// ErrMalformed is wrapped by errors about malformed documents, for example documents that are not JSON or not an
// object.
var ErrMalformed = errors.New("malformed document")

func malformed(reason string, size int) error {
	return fmt.Errorf("%w: %s (%d bytes)", ErrMalformed, reason, size)
}

// isObject reports whether b consists of one JSON value from start to end that is an object. end is negative if the
// value does not end.
func isObject(b []byte, start, end int) bool {
	return end >= 0 && b[start] == '{' && jsonscan.Space(b, end) == len(b)
}

type span struct{ start, end int }

// parser reads the parts of an API object's JSON that an Object requires, in one pass. Its fields alias the scanned
// bytes, until the method object copies the required parts. A parser can be used for many documents. The zero value is
// ready to use.
type parser struct {
	keepManaged              bool // keep the managedFields of objects
	share                    bool // do not copy the JSON of an object of which nothing is cut
	hasType                  bool // the object has a kind or an apiVersion
	apiVersion, kind         []byte
	namespace, name, uid     []byte
	resourceVersion, manager []byte
	owners                   [][]byte
	managedFields            []span   // parts to cut out, in ascending order
	managed                  span     // value of the last managedFields
	text                     []byte   // buffer of the method object
	parts                    [][]byte // buffer of the method raw
	lastAPIVersion, lastKind string   // arguments of the last handle, because most objects in a stream have the same kind
	lastHandle               unique.Handle[schema.GroupVersionKind]
}

// parse reads the object that opens at b[i]. It returns the offset after the object, or -1 if the object does not end.
func (p *parser) parse(b []byte, i int) int {
	p.hasType, p.apiVersion, p.kind = false, nil, nil
	p.managedFields = p.managedFields[:0]
	p.forgetMetadata()
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		switch string(w.Key) {
		case "apiVersion":
			p.hasType, p.apiVersion = true, w.Text()
		case "kind":
			p.hasType, p.kind = true, w.Text()
		case "metadata":
			p.forgetMetadata() // only the last of several equal keys counts
			w.Leave(p.metadata(b, w.Pos))
		default:
			w.Skip()
		}
	}
	return w.End()
}

func (p *parser) forgetMetadata() {
	p.namespace, p.name, p.uid, p.resourceVersion, p.manager = nil, nil, nil, nil, nil
	p.managed = span{}
	p.owners = p.owners[:0]
}

func (p *parser) metadata(b []byte, i int) int {
	kept := false // a member was passed that is not cut out
	w := jsonscan.Open(b, i, '{')
	for w.Next() {
		switch string(w.Key) {
		case "name":
			p.name = w.Text()
		case "namespace":
			p.namespace = w.Text()
		case "uid":
			p.uid = w.Text()
		case "resourceVersion":
			p.resourceVersion = w.Text()
		case "ownerReferences":
			p.owners = p.owners[:0]
			w.Leave(p.ownerReferences(b, w.Pos))
		case "managedFields":
			p.manager = nil
			p.managed.start = w.Pos
			w.Leave(p.newestManager(b, w.Pos))
			if !w.Bad {
				p.managed.end = w.Pos
				p.managedFields = append(p.managedFields, memberSpan(b, &w, kept))
			}
			continue
		default:
			w.Skip()
		}
		kept = true
	}
	return w.End()
}

// memberSpan returns the bytes to cut to remove the member that w has just passed, together with one comma. That is the
// comma before the member or, if no member before it is kept, the comma after it.
func memberSpan(b []byte, w *jsonscan.Walker, kept bool) span {
	if kept {
		return span{w.Comma, w.Pos}
	}
	if next := jsonscan.Space(b, w.Pos); next < len(b) && b[next] == ',' {
		return span{w.KeyAt, jsonscan.Space(b, next+1)}
	}
	return span{w.KeyAt, w.Pos}
}

func (p *parser) ownerReferences(b []byte, i int) int {
	w := jsonscan.Open(b, i, '[')
	for w.Next() {
		var uid []byte
		reference := jsonscan.Open(b, w.Pos, '{')
		for reference.Next() {
			if string(reference.Key) == "uid" {
				uid = reference.Text()
			} else {
				reference.Skip()
			}
		}
		w.Leave(reference.End())
		if len(uid) > 0 {
			p.owners = append(p.owners, uid)
		}
	}
	return w.End()
}

// newestManager records the manager of the entry with the latest time, or the last of several such entries. Entries
// whose time is not in the format of kube-apiserver count as older than all others.
func (p *parser) newestManager(b []byte, i int) int {
	var newest []byte
	w := jsonscan.Open(b, i, '[')
	for w.Next() {
		if b[w.Pos] != '{' {
			w.Skip()
			continue
		}
		var manager, at []byte
		entry := jsonscan.Open(b, w.Pos, '{')
		for entry.Next() {
			switch string(entry.Key) {
			case "manager":
				manager = entry.Text()
			case "time":
				at = entry.Text()
			default:
				entry.Skip()
			}
		}
		w.Leave(entry.End())
		if len(at) != len("2006-01-02T15:04:05Z") { // in this format, the byte order is the time order
			at = nil
		}
		if bytes.Compare(at, newest) >= 0 {
			newest, p.manager = at, manager
		}
	}
	return w.End()
}

// textSize is the size for which all strings of most objects are small enough, in bytes.
const textSize = 256

// document returns the Object of a document that consists of one object.
func (p *parser) document(b []byte) (*Object, error) {
	start := jsonscan.Space(b, 0)
	end := p.parse(b, start)
	if !isObject(b, start, end) {
		return nil, malformed("not one complete JSON object", len(b))
	}
	return p.object(b, start, end, nil), nil
}

// object returns an Object for the data that parse found in b[start:end]. If prefix is not empty, it replaces the
// opening brace.
func (p *parser) object(b []byte, start, end int, prefix []byte) *Object {
	o := &Object{Identity: Identity{gvk: p.handle()}, Raw: p.raw(b, start, end, prefix)}
	if p.keepManaged && p.managed.end > 0 {
		o.managed = new(bytes.Clone(b[p.managed.start:p.managed.end]))
	}
	// All strings share one allocation, because they have the same lifetime. None of them points into Raw.
	p.text = slices.Grow(p.text[:0], textSize)
	p.text = append(append(append(p.text, p.namespace...), '/'), p.name...)
	key := len(p.text)
	for _, part := range [...][]byte{p.uid, p.resourceVersion, p.manager} {
		p.text = append(p.text, part...)
	}
	for _, uid := range p.owners {
		p.text = append(p.text, uid...)
	}
	rest := string(p.text)
	take := func(part []byte) string {
		s := rest[:len(part)]
		rest = rest[len(part):]
		return s
	}
	o.key, rest = rest[:key], rest[key:]
	o.Namespace, o.Name = o.key[:len(p.namespace)], o.key[len(p.namespace)+1:]
	o.UID = types.UID(take(p.uid))
	o.ResourceVersion, o.Manager = take(p.resourceVersion), take(p.manager)
	if len(p.owners) > 0 {
		o.Owners = make([]types.UID, len(p.owners))
		for i, uid := range p.owners {
			o.Owners[i] = types.UID(take(uid))
		}
	}
	return o
}

// raw returns a copy of b[start:end] without managedFields. If prefix is not empty, it replaces the opening brace.
func (p *parser) raw(b []byte, start, end int, prefix []byte) []byte {
	if p.share && len(prefix)+len(p.managedFields) == 0 {
		return b[start:end:end]
	}
	parts := p.parts[:0]
	if len(prefix) > 0 {
		parts = append(parts, prefix)
		start++
	}
	for _, cut := range p.managedFields {
		parts = append(parts, b[start:cut.start])
		start = cut.end
	}
	p.parts = append(parts, b[start:end])
	return slices.Clip(bytes.Join(p.parts, nil)) // unlike make, Join does not first fill the memory with zeros
}

// handle returns the handle of the parsed apiVersion and kind. Creating a unique.Handle costs a hash and a look-up, so
// the last one is cached.
func (p *parser) handle() unique.Handle[schema.GroupVersionKind] {
	if len(p.apiVersion) == 0 && len(p.kind) == 0 {
		return unique.Handle[schema.GroupVersionKind]{}
	}
	if string(p.apiVersion) != p.lastAPIVersion || string(p.kind) != p.lastKind {
		p.lastAPIVersion, p.lastKind = string(p.apiVersion), string(p.kind)
		p.lastHandle = unique.Make(groupVersion(p.lastAPIVersion).WithKind(p.lastKind))
	}
	return p.lastHandle
}

// groupVersion splits an apiVersion. If its format is invalid, the whole text becomes the version, so APIVersion
// returns exactly the text in the document.
func groupVersion(apiVersion string) schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.String() != apiVersion {
		return schema.GroupVersion{Version: apiVersion}
	}
	return gv
}
