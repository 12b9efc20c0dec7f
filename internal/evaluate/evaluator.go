package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/discovery"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// firstVersion is the resourceVersion of the objects that exist before the first change.
const firstVersion = 1000

// timeout is the time limit for the API server and for each destination.
const timeout = 10 * time.Second

// state is a state of an object. It is nil if the object does not exist.
type state = *unstructured.Unstructured

// change is a change of one object at the API server.
type change struct {
	served    discovery.Served
	resource  schema.GroupVersionResource
	operation event.Type // Added, Updated, Deleted or Restated
	old, now  state
	version   string // resourceVersion of the change
}

// last returns the state after the change or, if the object was deleted, the state before.
func (c *change) last() state {
	if c.now == nil {
		return c.old
	}
	return c.now
}

// label notes the labels of the object if it is a Namespace.
func (c *change) label(namespaces filter.Namespaces) bool {
	if c.resource.GroupResource() != (schema.GroupResource{Resource: "namespaces"}) {
		return false
	}
	if c.now == nil {
		delete(namespaces, c.old.GetName())
	} else {
		namespaces[c.now.GetName()] = c.now.GetLabels()
	}
	return true
}

// options configures an evaluator.
type options struct {
	cfg        *config.Config
	scopes     []fleet.Scope
	existing   []change // the objects that exist before the first change, as additions
	clusterUID string   // empty if it is not known
	at         time.Time
	ask        bool // whether the destinations are asked for their partitions and limits
	fields     fieldSelector
}

// evaluator passes changes of objects through the parts of a bridge.
type evaluator struct {
	options

	sinks      []engine.Sink
	transform  func(schema.GroupVersionResource, *object.Object) // nil if objects are not changed
	managed    bool                                              // whether a payload requires managedFields
	informers  []*informer.Informer
	rehearsal  *engine.Rehearsal
	namespaces filter.Namespaces
	sent       map[string][]*event.Message // messages about the current change, by sink
}

// newEvaluator returns an evaluator for a cluster that serves the given resources.
func newEvaluator(o options, served []discovery.Served) (*evaluator, error) {
	e := &evaluator{options: o, namespaces: filter.Namespaces{}, sent: map[string][]*event.Message{}}
	parts, transform, err := assemble.Rehearsal(o.cfg)
	if err != nil {
		return nil, err
	}
	e.sinks, e.transform = parts.Sinks, transform
	for n := range e.sinks {
		e.managed = e.managed || e.sinks[n].Encoder.Payload == event.PayloadChange
	}
	parts.Time, parts.ClusterUID = o.at, o.clusterUID
	parts.Deliver = func(sink string, m *event.Message) { e.sent[sink] = append(e.sent[sink], m) }
	if e.rehearsal, err = engine.NewRehearsal(parts); err != nil {
		return nil, err
	}
	e.informers = fleet.Offline(o.scopes, served)
	for _, i := range e.informers {
		e.rehearsal.Attach(i)
	}
	for n := range o.existing {
		o.existing[n].label(e.namespaces)
	}
	e.rehearsal.SelectNamespaces(e.namespaces)
	for _, i := range e.informers {
		if err := e.list(i); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// list delivers the first list of an informer.
func (e *evaluator) list(i *informer.Informer) error {
	var list []any
	for n := range e.existing {
		if c := &e.existing[n]; e.selects(i.Source(), c, c.now) {
			o, err := e.read(i.Resource(), c.now)
			if err != nil {
				return err
			}
			list = append(list, o)
		}
	}
	return i.Store().Replace(list, strconv.Itoa(firstVersion))
}

// evaluate delivers a change, and returns what the sinks are sent because of it.
func (e *evaluator) evaluate(ctx context.Context, c *change) (sinks []Sink, err error) {
	clear(e.sent)
	for _, i := range e.informers {
		if err := e.deliver(i, c); err != nil {
			return nil, err
		}
	}
	if c.label(e.namespaces) {
		e.rehearsal.SelectNamespaces(e.namespaces)
	}
	old, err := e.read(c.resource, c.old)
	if err != nil {
		return nil, err
	}
	now, err := e.read(c.resource, c.now)
	if err != nil {
		return nil, err
	}
	if now == nil {
		old, now = nil, old
	}
	for n, f := range e.rehearsal.Filters() {
		s := Sink{Name: e.sinks[n].Name, Kind: e.sinks[n].Kind, Filters: f.Explain(c.resource, c.operation, old, now)}
		for _, m := range e.sent[s.Name] {
			s.messages = append(s.messages, e.message(ctx, &e.sinks[n], m))
		}
		s.describe()
		sinks = append(sinks, s)
	}
	return sinks, nil
}

// message describes a message, and asks the destination where it would store it.
func (e *evaluator) message(ctx context.Context, s *engine.Sink, m *event.Message) *Message {
	out := &Message{
		ID: m.ID, Attributes: maps.Collect(m.Attributes), operation: m.Operation(), about: m.Subject(),
		headers: map[string]string{}, Placement: diagnose.Placement{Size: int64(len(m.Body()))},
	}
	_ = utiljson.Unmarshal(m.Data, &out.data) // the data is JSON
	if m.Type.IsControl() {
		out.rejected = m.GapInfo.Message // the object could not be encoded
		return out
	}
	previewer, ok := s.Destination.(diagnose.Previewer)
	if !ok {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var err error
	if out.Placement, err = previewer.Preview(ctx, m, e.ask); err != nil {
		out.rejected = err.Error()
	}
	for _, h := range out.Headers {
		out.headers[h.Name] = h.Value
	}
	if out.Unknown != nil {
		out.Incomplete = out.Unknown.Error()
	}
	if out.Limit > 0 && out.Size > out.Limit {
		out.Oversize = "the sink's setting oversize: " + string(e.cfg.Sink(s.Name).Oversize) + " applies"
	}
	return out
}

// deliver delivers a change to an informer, as the watch of an API server does.
func (e *evaluator) deliver(i *informer.Informer, c *change) error {
	before, now := e.selects(i.Source(), c, c.old), e.selects(i.Source(), c, c.now)
	if !before && !now {
		return nil
	}
	s, deliver := c.now, i.Store().Update
	switch {
	case c.operation == event.Restated:
		deliver = func(o any) error { e.rehearsal.Restate(i, o.(*object.Object)); return nil }
	case !before:
		deliver = i.Store().Add
	case !now: // the API server sends the last state, with the resourceVersion of the change
		s, deliver = c.old.DeepCopy(), i.Store().Delete
		s.SetResourceVersion(c.version)
	}
	o, err := e.read(i.Resource(), s)
	if err != nil {
		return err
	}
	err = deliver(o)
	i.Store().UpdateResourceVersion(c.version)
	return err
}

// read decodes a state as a watch does. It returns nil if the object does not exist.
func (e *evaluator) read(resource schema.GroupVersionResource, s state) (*object.Object, error) {
	if s == nil {
		return nil, nil
	}
	line, err := json.Marshal(map[string]any{"type": "ADDED", "object": s.Object})
	if err != nil {
		return nil, err
	}
	_, decoded, err := object.NewWatchDecoder(io.NopCloser(bytes.NewReader(append(line, '\n'))), "", e.managed).Decode()
	if err != nil {
		return nil, err
	}
	o := decoded.(*object.Object) // only an ERROR event has something else
	if e.transform != nil {
		e.transform(resource, o)
	}
	return o, nil
}

// selects reports whether an API server sends an object to the watch of a source.
func (e *evaluator) selects(source informer.Source, c *change, s state) bool {
	if s == nil || c.resource.GroupResource() != source.Resource.GroupResource() ||
		source.Namespace != "" && source.Namespace != s.GetNamespace() {
		return false
	}
	selector, err := labels.Parse(source.LabelSelector)
	selects := err == nil && selector.Matches(labels.Set(s.GetLabels()))
	if selects && e.fields != nil {
		selects, err = e.fields(source.FieldSelector, s)
	}
	return selects && err == nil
}
