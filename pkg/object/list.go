package object

import (
	"encoding/json"
	"strings"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// List is what a LIST decodes to. Its items share no memory with the body that they came from, nor with each other.
type List struct {
	metav1.TypeMeta
	metav1.ListMeta
	Items []*Object
	// ManagedFields, set before the list is decoded, keeps each item's managedFields as WatchOptions.ManagedFields does.
	ManagedFields bool
}

var (
	_ runtime.Object       = (*List)(nil)
	_ metav1.ListInterface = (*List)(nil)
)

// DeepCopyObject implements runtime.Object.
func (l *List) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	c := &List{TypeMeta: l.TypeMeta, ManagedFields: l.ManagedFields}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	if l.Items != nil {
		c.Items = make([]*Object, len(l.Items))
	}
	for i, o := range l.Items {
		if o != nil {
			c.Items[i] = o.DeepCopyObject().(*Object)
		}
	}
	return c
}

// decode reads the body of a LIST into l, whatever l held before.
func (l *List) decode(b []byte) error {
	*l = List{ManagedFields: l.ManagedFields}
	start := jsonscan.Space(b, 0)
	if start == len(b) || b[start] != '{' {
		return malformed("list is not a JSON object", len(b))
	}
	d := listDecoder{b: b, itemsAt: -1, p: parser{keepManaged: l.ManagedFields}}
	w := open(b, start)
	for w.next() {
		switch string(w.key) {
		case "apiVersion":
			l.APIVersion = string(w.text())
		case "kind":
			l.Kind = string(w.text())
		case "metadata":
			at := w.pos
			w.skip()
			l.ListMeta = metav1.ListMeta{}
			if !w.bad {
				_ = utiljson.Unmarshal(b[at:w.pos], &l.ListMeta) // what is of another type counts as absent
			}
		case "items":
			w.leave(d.items(w.pos, l.TypeMeta))
		default:
			w.skip()
		}
	}
	end := w.end()
	if end < 0 {
		return malformed("list without an end", len(b))
	}
	if jsonscan.Space(b, end) != len(b) {
		return malformed("more than one JSON value", len(b))
	}
	if d.itemsAt >= 0 && d.list != l.TypeMeta {
		d.items(d.itemsAt, l.TypeMeta) // the list said only behind its items what they are
	}
	l.Items = d.found
	return nil
}

type listDecoder struct {
	b       []byte
	p       parser
	itemsAt int             // -1 before there were any
	list    metav1.TypeMeta // of the list, as far as it was known when the items were read
	found   []*Object

	// What an item of the list is if it does not say so itself: the values, and as members of a JSON object with the
	// comma behind them. Empty where the list does not say either.
	kind, apiVersion                   []byte
	kindMember, versionMember, members string
}

// items reads the items at b[i] and returns the offset behind them, -1 if they have no end. Of equal keys the last one
// counts, so an earlier result is dropped.
func (d *listDecoder) items(i int, list metav1.TypeMeta) int {
	d.itemsAt, d.list, d.found = i, list, nil
	if d.b[i] != '[' {
		return jsonscan.Value(d.b, i)
	}
	d.typed(list)
	w := open(d.b, i)
	for w.next() {
		if !w.opens('{') {
			w.skip()
			continue
		}
		start := w.pos
		w.leave(d.p.parse(d.b, start))
		if !w.bad {
			d.found = append(d.found, d.p.object(d.b, start, w.pos, d.missing(start)))
		}
	}
	return w.end()
}

func (d *listDecoder) typed(list metav1.TypeMeta) {
	d.kind, d.kindMember, d.apiVersion, d.versionMember = nil, "", nil, ""
	if kind, ok := strings.CutSuffix(list.Kind, "List"); ok && kind != "" {
		d.kind, d.kindMember = []byte(kind), stringMember("kind", kind)
	}
	if list.APIVersion != "" {
		d.apiVersion, d.versionMember = []byte(list.APIVersion), stringMember("apiVersion", list.APIVersion)
	}
	d.members = d.kindMember + d.versionMember // the order of watch events
}

// missing returns the members to put into the item at b[start], which was parsed, and tells the parser what they say.
// Items of typed lists have neither apiVersion nor kind, unlike those of custom resources and the objects of a watch.
func (d *listDecoder) missing(start int) string {
	var members string
	switch {
	case !d.p.hasKind && !d.p.hasAPIVersion:
		d.p.kind, d.p.apiVersion, members = d.kind, d.apiVersion, d.members
	case !d.p.hasKind:
		d.p.kind, members = d.kind, d.kindMember
	case !d.p.hasAPIVersion:
		d.p.apiVersion, members = d.apiVersion, d.versionMember
	}
	if members != "" && d.b[jsonscan.Space(d.b, start+1)] == '}' {
		return strings.TrimSuffix(members, ",") // nothing follows in an empty object
	}
	return members
}

func stringMember(key, value string) string {
	quoted, err := json.Marshal(value)
	if err != nil {
		return "" // strings always marshal
	}
	return `"` + key + `":` + string(quoted) + ","
}
