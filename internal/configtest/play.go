package configtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// clock is the time of all events.
const clock = "2000-01-01T00:00:00Z"

// installation stands for the random name of the installation in headers.
const installation = "<installation>"

// player passes the changes of a story through the parts of a bridge.
type player struct {
	cfg       *config.Config
	transform func(schema.GroupVersionResource, *object.Object) // nil if objects are not changed
	managed   bool                                              // whether a payload requires managedFields
	informers []*informer.Informer
	filters   map[string]*filter.Filter // by sink

	change int                // number of the current change; 0 for the objects that exist
	sent   map[string][]*sent // by sink; without what is sent about the objects that exist
	err    error              // the first error of deliver
}

// sent is an event that a sink was sent.
type sent struct {
	change     int // the number of its change, from 1
	operation  string
	about      string // the object
	id         string
	attributes map[string]string
	headers    map[string]string
	diagnose.Placement
	rejected string // why the destination rejects the message; empty if it does not
	data     any
}

// play runs a story.
func play(cfg *config.Config, s *story) (*player, error) {
	p := &player{cfg: cfg, sent: map[string][]*sent{}}
	r, err := p.assemble()
	if err != nil {
		return nil, err
	}
	p.informers = fleet.Offline(assemble.Scopes(cfg), s.served)
	for _, i := range p.informers {
		r.Attach(i)
	}
	existing := filter.Namespaces{}
	for n := range s.objects {
		s.objects[n].label(existing)
	}
	r.SelectNamespaces(existing)
	for _, i := range p.informers {
		if err := p.list(i, s.objects); err != nil {
			return nil, err
		}
	}
	for n := range s.changes {
		p.change = n + 1
		for _, i := range p.informers {
			if err := p.deliver(i, &s.changes[n]); err != nil {
				return nil, err
			}
		}
		if s.changes[n].label(existing) {
			r.SelectNamespaces(existing)
		}
	}
	p.filters = r.Filters()
	return p, p.err
}

// label notes the labels of the object if it is a Namespace.
func (c *change) label(existing filter.Namespaces) bool {
	if c.resource.GroupResource() != (schema.GroupResource{Resource: "namespaces"}) {
		return false
	}
	if c.now == nil {
		delete(existing, c.old.GetName())
	} else {
		existing[c.now.GetName()] = c.now.GetLabels()
	}
	return true
}

// assemble builds the sinks as `bridge run` does.
func (p *player) assemble() (*engine.Rehearsal, error) {
	redaction, err := assemble.RedactionWith(p.cfg, bytes.Repeat([]byte("key "), 8))
	if err != nil {
		return nil, err
	}
	p.transform = redaction.Transform()
	at, err := time.Parse(time.RFC3339, clock)
	if err != nil {
		return nil, err
	}
	parts, err := assemble.Offline(p.cfg, redaction, installation)
	if err != nil {
		return nil, err
	}
	previewers := map[string]diagnose.Previewer{}
	for n := range parts {
		p.managed = p.managed || parts[n].Encoder.Payload == event.PayloadChange
		previewers[parts[n].Name], _ = parts[n].Destination.(diagnose.Previewer)
	}
	enrichment := assemble.Enrichment(p.cfg, redaction)
	enrichment.Awaited = nil // nothing comes later
	return engine.NewRehearsal(parts, enrichment, at, func(sink string, m *event.Message) {
		if p.change > 0 {
			p.note(sink, previewers[sink], m)
		}
	})
}

// note records a message that a sink was sent.
func (p *player) note(sink string, previewer diagnose.Previewer, m *event.Message) {
	e := &sent{
		change: p.change, operation: m.Operation(), about: m.Subject(), id: m.ID,
		attributes: maps.Collect(m.Attributes), headers: map[string]string{},
	}
	if err := utiljson.Unmarshal(m.Data, &e.data); err != nil && p.err == nil {
		p.err = fmt.Errorf("sink %s: the data of event %s is not JSON: %w", sink, m.ID, err)
	}
	if previewer != nil {
		var err error
		if e.Placement, err = previewer.Preview(context.Background(), m, false); err != nil {
			e.rejected = err.Error()
		}
	}
	for _, h := range e.Headers {
		e.headers[h.Name] = h.Value
	}
	p.sent[sink] = append(p.sent[sink], e)
}

// list delivers the first list of an informer.
func (p *player) list(i *informer.Informer, objects []change) error {
	var list []any
	for n := range objects {
		if c := &objects[n]; selects(i.Source(), c.resource, c.now) {
			o, err := p.read(i, c.now)
			if err != nil {
				return err
			}
			list = append(list, o)
		}
	}
	return i.Store().Replace(list, fmt.Sprint(firstVersion))
}

// deliver delivers a change to an informer, as the watch of an API server does.
func (p *player) deliver(i *informer.Informer, c *change) error {
	before, now := selects(i.Source(), c.resource, c.old), selects(i.Source(), c.resource, c.now)
	deliver, state := i.Store().Update, c.now
	switch {
	case !before && !now:
		return nil
	case !before:
		deliver = i.Store().Add
	case !now:
		deliver, state = i.Store().Delete, c.last
	}
	o, err := p.read(i, state)
	if err == nil {
		err = deliver(o)
	}
	i.Store().UpdateResourceVersion(c.version)
	return err
}

// read decodes a state as a watch does.
func (p *player) read(i *informer.Informer, s state) (*object.Object, error) {
	line, err := json.Marshal(map[string]any{"type": "ADDED", "object": s.Object})
	if err != nil {
		return nil, err
	}
	_, decoded, err := object.NewWatchDecoder(io.NopCloser(bytes.NewReader(append(line, '\n'))), "", p.managed).Decode()
	if err != nil {
		return nil, err
	}
	o := decoded.(*object.Object) // only an ERROR event has something else
	if p.transform != nil {
		p.transform(i.Resource(), o)
	}
	return o, nil
}

// selects reports whether an API server sends an object to the watch of a source. The object is nil if it does not
// exist.
func selects(source informer.Source, resource schema.GroupVersionResource, s state) bool {
	if s == nil || resource.GroupResource() != source.Resource.GroupResource() ||
		source.Namespace != "" && source.Namespace != s.GetNamespace() {
		return false
	}
	byLabel, err := labels.Parse(source.LabelSelector)
	return err == nil && byLabel.Matches(labels.Set(s.GetLabels())) && selectsFields(source.FieldSelector, s)
}

// selectsFields evaluates a field selector. An API server calculates few fields: all others have the name of a path in
// the object.
func selectsFields(selector string, s state) bool {
	byField, err := fields.ParseSelector(selector)
	if err != nil {
		return false
	}
	values := fields.Set{}
	for _, r := range byField.Requirements() {
		value, found, err := unstructured.NestedFieldNoCopy(s.Object, strings.Split(r.Field, ".")...)
		if found && err == nil {
			values[r.Field] = fmt.Sprint(value)
		}
	}
	return byField.Matches(values)
}
