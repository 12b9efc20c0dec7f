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

// ErrMalformed is wrapped by errors about documents that are not what they should be: no JSON, or no object.
var ErrMalformed = errors.New("malformed document")

func malformed(reason string, size int) error {
	return fmt.Errorf("%w: %s (%d bytes)", ErrMalformed, reason, size)
}

type span struct{ start, end int }

// parser finds what an Object needs in the JSON of an API object, in one pass. Its fields alias the scanned bytes until
// object copies what stays. A parser is reused from document to document; the zero value is ready.
type parser struct {
	keepManaged              bool // objects keep their managedFields
	hasType                  bool // the object has a kind or an apiVersion
	apiVersion, kind         []byte
	namespace, name, uid     []byte
	resourceVersion, manager []byte
	owners                   [][]byte
	managedFields            []span // to be cut out; in ascending order
	managed                  span   // the value of the last one
	longestKey               int    // length in bytes, as it is written; what is within managedFields does not count
	text                     []byte // scratch of object
	lastAPIVersion, lastKind string // of the last gvk: objects of one stream are of one kind
	lastHandle               unique.Handle[schema.GroupVersionKind]
}

// parse reads the object that opens at b[i] and returns the offset behind it, -1 if it has no end.
func (p *parser) parse(b []byte, i int) int {
	p.hasType, p.apiVersion, p.kind = false, nil, nil
	p.managedFields, p.longestKey = p.managedFields[:0], 0
	p.forgetMetadata()
	w := open(b, i)
	for w.next() {
		switch string(w.key) {
		case "apiVersion":
			p.hasType, p.apiVersion = true, w.text()
		case "kind":
			p.hasType, p.kind = true, w.text()
		case "metadata":
			p.forgetMetadata() // of equal keys the last one counts alone
			if w.opens('{') {
				w.leave(p.metadata(b, w.pos))
			} else {
				w.skip()
			}
		default:
			w.skip()
		}
	}
	p.longestKey = max(p.longestKey, w.longestKey)
	return w.end()
}

func (p *parser) forgetMetadata() {
	p.namespace, p.name, p.uid, p.resourceVersion, p.manager = nil, nil, nil, nil, nil
	p.managed = span{}
	p.owners = p.owners[:0]
}

func (p *parser) metadata(b []byte, i int) int {
	kept := false // a member that stays was seen
	w := open(b, i)
	for w.next() {
		switch string(w.key) {
		case "name":
			p.name = w.text()
		case "namespace":
			p.namespace = w.text()
		case "uid":
			p.uid = w.text()
		case "resourceVersion":
			p.resourceVersion = w.text()
		case "ownerReferences":
			p.owners = p.owners[:0]
			if w.opens('[') {
				w.leave(p.ownerReferences(b, w.pos))
			} else {
				w.skip()
			}
		case "managedFields":
			p.manager = nil
			p.managed.start = w.pos
			if w.opens('[') {
				w.leave(p.newestManager(b, w.pos))
			} else {
				w.skip()
			}
			if !w.bad {
				p.managed.end = w.pos
				p.managedFields = append(p.managedFields, memberSpan(b, &w, kept))
			}
			continue
		default:
			w.skip()
		}
		kept = true
	}
	p.longestKey = max(p.longestKey, w.longestKey)
	return w.end()
}

// memberSpan is what to cut so that the member that w just passed is gone and one comma with it: the one before it,
// or while no member stays before it, the one behind it.
func memberSpan(b []byte, w *walker, kept bool) span {
	if kept {
		return span{w.comma, w.pos}
	}
	if next := jsonscan.Space(b, w.pos); next < len(b) && b[next] == ',' {
		return span{w.keyAt, jsonscan.Space(b, next+1)}
	}
	return span{w.keyAt, w.pos}
}

func (p *parser) ownerReferences(b []byte, i int) int {
	w := open(b, i)
	for w.next() {
		if !w.opens('{') {
			w.skip()
			continue
		}
		var uid []byte
		reference := open(b, w.pos)
		for reference.next() {
			if string(reference.key) == "uid" {
				uid = reference.text()
			} else {
				reference.skip()
			}
		}
		w.leave(reference.end())
		p.longestKey = max(p.longestKey, reference.longestKey)
		if len(uid) > 0 {
			p.owners = append(p.owners, uid)
		}
	}
	return w.end()
}

// newestManager notes the manager of the newest entry by its time; of equally old ones the last. An entry without a
// time as kube-apiserver writes it is older than all others.
func (p *parser) newestManager(b []byte, i int) int {
	var newest []byte
	w := open(b, i)
	for w.next() {
		if !w.opens('{') {
			w.skip()
			continue
		}
		var manager, at []byte
		entry := open(b, w.pos)
		for entry.next() {
			switch string(entry.key) {
			case "manager":
				manager = entry.text()
			case "time":
				at = entry.text()
			default:
				entry.skip()
			}
		}
		w.leave(entry.end())
		if len(at) != len("2006-01-02T15:04:05Z") { // these times are in the order of their bytes
			at = nil
		}
		if bytes.Compare(at, newest) >= 0 {
			newest, p.manager = at, manager
		}
	}
	return w.end()
}

// object makes an Object of what parse found in b[start:end], with prefix put behind its opening brace.
func (p *parser) object(b []byte, start, end int, prefix string) *Object {
	o := &Object{
		Identity:   Identity{gvk: p.handle()},
		Raw:        p.raw(b, start, end, prefix),
		LongestKey: int32(p.longestKey),
	} //nolint:gosec // documents are smaller than that
	if p.keepManaged && p.managed.end > 0 {
		o.managed = new(bytes.Clone(b[p.managed.start:p.managed.end]))
	}
	// One allocation holds all strings: they live as long as each other, and none points into Raw.
	p.text = append(append(append(p.text[:0], p.namespace...), '/'), p.name...)
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

// raw copies b[start:end] without managedFields, and with prefix after the opening brace. append, unlike make, does not
// fill the memory with zeros first. So raw copies as many bytes from the end as remain, and then writes over those
// before the last cut, which are few: managedFields are near the start of an object.
func (p *parser) raw(b []byte, start, end int, prefix string) []byte {
	size := len(prefix) + end - start
	for _, cut := range p.managedFields {
		size -= cut.end - cut.start
	}
	tail := b[max(0, end-size):end]
	raw := append(make([]byte, size-len(tail)), tail...)
	at := 0
	if prefix != "" {
		at = copy(raw, "{") + copy(raw[1:], prefix)
		start++
	}
	for _, cut := range p.managedFields {
		at += copy(raw[at:], b[start:cut.start])
		start = cut.end
	}
	return slices.Clip(raw)
}

// handle of the parsed apiVersion and kind. A unique.Handle costs a hash and a look-up, so the last one is remembered.
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

// groupVersion splits an apiVersion. One that is none in form counts as a version as a whole, so that APIVersion gives
// back what the document says.
func groupVersion(apiVersion string) schema.GroupVersion {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil || gv.String() != apiVersion {
		return schema.GroupVersion{Version: apiVersion}
	}
	return gv
}
