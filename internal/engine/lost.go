package engine

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lostGaps returns the gap events that replace events that cannot be read back from the disk. It is not known which
// events were lost. Therefore there is one gap event for every resource that the lost events can belong to: every
// resource that has a position in the spill. If not all positions are known, because the whole spill or parked events
// are lost, or the lost events had them, one gap event is returned for every resource that the sink knows according to
// the checkpoint.
func (p *pipeline) lostGaps(l fifo.Loss, at time.Time) (gaps []*event.Message) {
	if p.audit != nil {
		return []*event.Message{p.identified(p.audit.Gap(int64(l.Items()), "a damaged file contained them"), l, at)}
	}
	resources, upTo := map[string]schema.GroupVersionResource{}, map[string]string{}
	for mark, position := range l.Positions {
		_, source, _ := strings.Cut(mark, "/")
		name, _, _ := strings.Cut(source, " ") // the name of a source begins with its resource
		resources[name] = schema.ParseGroupResource(name).WithVersion("")
		if tracker.Past(upTo[name], position) {
			upTo[name] = position
		}
	}
	for _, state := range p.tracker.States() {
		name := event.GroupResource(state.Source.Resource)
		_, has := resources[name]
		_, had := state.Sinks[p.Name]
		if has || (l.Positions == nil || l.Unnamed) && had {
			resources[name] = state.Source.Resource // this value includes the version
		}
	}
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		gaps = append(gaps, p.lostGap(l, at, resources[name], upTo[name]))
	}
	return gaps
}

func (p *pipeline) lostGap(
	l fifo.Loss, at time.Time, resource schema.GroupVersionResource, to string,
) *event.Message {
	info := &event.GapInfo{
		Resource: event.GroupResource(resource), To: to, Reason: event.ReasonDamaged,
		Message: "events in a damaged file are lost; they can belong to any resource that had events there",
	}
	ev := event.Event{Type: event.Gap, Time: at, Resource: resource, GapInfo: info}
	info.Events = int64(l.Items())
	gap, _ := p.Encoder.Encode(ev)        // gap events can always be encoded
	gap.ClusterUID = p.tracker.KnownUID() // not p.clusterUID: a damaged spill can be found before that is set
	return p.identified(gap, l, at)
}

// identified completes the id of a gap event with a number that makes the ids differ if one file loses events twice.
func (p *pipeline) identified(gap *event.Message, l fifo.Loss, at time.Time) *event.Message {
	number := "file." + strconv.FormatInt(at.UnixNano(), 36)
	if l.Items() > 0 {
		number = strconv.FormatUint(l.First, 10)
	}
	gap.ID += "." + number
	p.Metrics.Of(gap).Queue(gap)
	return gap
}
