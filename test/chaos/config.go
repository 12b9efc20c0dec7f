package chaos

import (
	"fmt"
	"strings"
)

// yaml writes a configuration for the binary.
func (r *run) yaml(c Config) string {
	var b strings.Builder
	fmt.Fprintf(
		&b,
		"cluster: chaos%d\nkubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\"}\nstate: {path: %q}\nlog: {level: debug}\nshutdownTimeout: 2s\nwatch:\n",
		r.w.lane,
		r.kubeconfig,
		r.state,
	)
	for _, watch := range c.Watch {
		fmt.Fprintf(
			&b,
			"  - resources: [%s]\n    namespaces: [%s]\n",
			strings.Join(watch.Resources, ", "),
			r.real(watch.Namespaces, true),
		)
		if watch.Team != "" {
			fmt.Fprintf(&b, "    labelSelector: %s=%s\n", teamLabel, watch.Team)
		}
	}
	b.WriteString("sinks:\n")
	for _, s := range c.Sinks {
		r.yamlSink(&b, s)
	}
	return b.String()
}

// real gives the names of namespaces.
func (r *run) real(letters []string, all bool) string {
	if len(letters) == 0 && all {
		return fmt.Sprintf("%q", r.name+"-*")
	}
	var names []string
	for _, l := range letters {
		names = append(names, r.names[l])
	}
	return strings.Join(names, ", ")
}

func (r *run) yamlSink(b *strings.Builder, s Sink) {
	fmt.Fprintf(b, "  - name: %s\n", s.Name)
	if s.Payload != "" {
		fmt.Fprintf(b, "    payload: %s\n", s.Payload)
	}
	if s.Progress {
		b.WriteString("    progress: 1s\n")
	}
	d := r.dests[s.Dest()]
	yamlControl(b, s, d.control.stream)
	var buffer []string
	if s.Events > 0 {
		buffer = append(buffer, fmt.Sprintf("events: %d", s.Events))
	}
	if s.Small {
		buffer = append(buffer, "bytes: 64Ki")
	}
	switch {
	case s.Overflow != "": // which applies when the disk is full too
		buffer = append(buffer, "overflow: "+s.Overflow, "spill: {maxBytes: 64Ki}")
	case s.Small:
		buffer = append(buffer, "spill: {maxBytes: 1Mi}")
	}
	if len(buffer) > 0 {
		fmt.Fprintf(b, "    buffer: {%s}\n", strings.Join(buffer, ", "))
	}
	filter := r.yamlFilter(s.Filter)
	if len(filter) > 0 {
		fmt.Fprintf(b, "    filters: [{%s}]\n", strings.Join(filter, ", "))
	}
	switch s.Kind {
	case Topic:
		fmt.Fprintf(
			b,
			"    kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 2, replicationFactor: 1}}\n",
			d.proxy.Addr(),
			d.stream,
		)
	case CompactedTopic:
		fmt.Fprintf(
			b,
			"    kafka: {brokers: [%q], topic: %q, tombstones: true, createTopics: {partitions: 2, replicationFactor: 1}}\n",
			d.proxy.Addr(),
			d.stream,
		)
	case Bucket:
		fmt.Fprintf(
			b,
			"    nats: {url: \"nats://%s\", ackTimeout: 3s, bucket: %s, stream: {create: true}}\n",
			d.proxy.Addr(),
			d.stream,
		)
	case Latest:
		fmt.Fprintf(
			b,
			"    nats: {url: \"nats://%s\", ackTimeout: 3s, subject: %q, stream: {name: %s, create: true, lastPerSubject: true}}\n",
			d.proxy.Addr(),
			d.stream+".{group}.{resource}.{namespace}.{name}",
			d.stream,
		)
	default:
		fmt.Fprintf(b, "    nats: {url: \"nats://%s\", ackTimeout: 3s, subject: %q, stream: {name: %s}}\n",
			d.proxy.Addr(), d.stream+".{group}.{resource}.{namespace}.{name}", d.stream)
	}
}

func (r *run) yamlFilter(f Filter) []string {
	var filter []string
	if len(f.Resources) > 0 {
		filter = append(filter, "resources: ["+strings.Join(f.Resources, ", ")+"]")
	}
	if len(f.Namespaces) > 0 {
		filter = append(filter, "namespaces: ["+r.real(f.Namespaces, false)+"]")
	}
	if f.Team != "" {
		filter = append(
			filter,
			fmt.Sprintf(`when: "object.metadata.?labels.?%s.orValue('') == '%s'"`, teamLabel, f.Team),
		)
	}
	if f.Zone != "" {
		filter = append(filter, fmt.Sprintf("namespaceSelector: %s=%s", zoneLabel, f.Zone))
	}
	if f.Debounce > 0 {
		filter = append(filter, fmt.Sprintf("debounce: %s", f.Debounce))
	}
	return filter
}

func yamlControl(b *strings.Builder, s Sink, place string) {
	switch {
	case s.Control == NoControl:
		b.WriteString("    controlEvents: {none: {}}\n")
	case s.Control == Apart && s.Kind.OnKafka():
		fmt.Fprintf(b, "    controlEvents: {topic: %q}\n", place)
	case s.Control == Apart:
		fmt.Fprintf(b, "    controlEvents: {subject: %q, stream: %s}\n",
			place+".{group}.{resource}.{name}", place)
	}
}
