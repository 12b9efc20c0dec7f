package object

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// List is the decoded result of a LIST. Its items share no memory with the body from which they were read, nor with
// each other.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*Object
	// ManagedFields keeps the managedFields of each item, as NewWatchDecoder can. It must be set before the list
	// is decoded.
	ManagedFields bool
}

var (
	_ runtime.Object       = (*List)(nil)
	_ metav1.ListInterface = (*List)(nil)
)

// DeepCopyObject implements runtime.Object. The copy contains the same items, because objects are immutable.
func (l *List) DeepCopyObject() runtime.Object {
	c := *l
	c.ListMeta, c.Items = *l.ListMeta.DeepCopy(), slices.Clone(l.Items)
	return &c
}

// decode reads the body of a LIST into l. It overwrites all fields except ManagedFields.
func (l *List) decode(b []byte) error {
	*l = List{ManagedFields: l.ManagedFields}
	d := listDecoder{b: b, p: parser{keepManaged: l.ManagedFields}}
	w := jsonscan.Open(b, 0, '{')
	for w.Next() {
		switch string(w.Key) {
		case "apiVersion":
			l.APIVersion = string(w.Text())
		case "kind":
			l.Kind = string(w.Text())
		case "metadata":
			l.ListMeta = metav1.ListMeta{}
			_ = utiljson.Unmarshal(w.Value(), &l.ListMeta) // a member of an unexpected type counts as absent
		case "items":
			w.Leave(d.items(w.Pos, l.TypeMeta))
		default:
			w.Skip()
		}
	}
	if !isObject(b, jsonscan.Space(b, 0), w.End()) {
		return malformed("the list is not one complete JSON object", len(b))
	}
	if d.at > 0 && d.list != l.TypeMeta {
		d.items(d.at, l.TypeMeta) // the type of the list came after its items
	}
	l.Items = d.found
	return nil
}

// listDecoder reads the items of a list.
type listDecoder struct {
	b     []byte
	p     parser
	at    int             // offset of the items; 0 before they were read
	list  metav1.TypeMeta // type of the list, as far as it was known when the items were read
	found []*Object

	// The default type of items that do not contain a type: kind and apiVersion as values, and the beginning of an object
	// that contains both, with a comma at the end.
	kind, apiVersion, members []byte
}

// items reads the items at b[i] and returns the offset after them, or -1 if they do not end. If the list contains
// several "items" keys, only the last one counts, so an earlier result is dropped.
func (d *listDecoder) items(i int, list metav1.TypeMeta) int {
	d.at, d.list, d.found = i, list, nil
	d.setType(list)
	w := jsonscan.Open(d.b, i, '[')
	for w.Next() {
		start := w.Pos
		w.Leave(d.p.parse(d.b, start))
		if !w.Bad && d.b[start] == '{' {
			d.found = append(d.found, d.p.object(d.b, start, w.Pos, d.missing(start)))
		}
	}
	return w.End()
}

// setType derives the type of the items from the type of their list.
func (d *listDecoder) setType(list metav1.TypeMeta) {
	kind, ok := strings.CutSuffix(list.Kind, "List")
	if !ok {
		kind = ""
	}
	quoted, _ := json.Marshal(metav1.TypeMeta{Kind: kind, APIVersion: list.APIVersion}) // strings always marshal
	d.kind, d.apiVersion, d.members = []byte(kind), []byte(list.APIVersion), nil
	if string(quoted) != "{}" {
		d.members = append(bytes.TrimSuffix(quoted, []byte("}")), ',')
	}
}

// missing returns the bytes that must replace the opening brace of the item at b[start], which was just parsed, and
// sets the type in the parser. It returns nil if the item contains its type. Items of typed lists have neither kind nor
// apiVersion, unlike custom resources and the objects of a watch.
func (d *listDecoder) missing(start int) []byte {
	if d.p.hasType || d.members == nil {
		return nil
	}
	d.p.kind, d.p.apiVersion = d.kind, d.apiVersion
	if d.b[jsonscan.Space(d.b, start+1)] == '}' {
		return bytes.TrimSuffix(d.members, []byte(",")) // an empty object has no member after them
	}
	return d.members
}
