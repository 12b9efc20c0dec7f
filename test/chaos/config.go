package chaos

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// object is an object of a configuration file.
type object = map[string]any

// yaml returns a configuration for the binary.
func (r *run) yaml(c Config) string {
	var watch, sinks []object
	for _, w := range c.Watch {
		entry := object{"resources": w.Resources, "namespaces": []string{r.name + "-*"}}
		if len(w.Namespaces) > 0 {
			entry["namespaces"] = r.real(w.Namespaces)
		}
		if w.Team != "" {
			entry["labelSelector"] = teamLabel + "=" + w.Team
		}
		watch = append(watch, entry)
	}
	for _, s := range c.Sinks {
		sinks = append(sinks, r.yamlSink(s))
	}
	text, err := yaml.Marshal(object{
		"cluster": fmt.Sprintf("chaos%d", r.w.lane), "kubeconfig": r.kubeconfig, "http": object{"listen": "127.0.0.1:0"},
		"state": object{"path": r.state}, "log": object{"level": "debug"}, "shutdownTimeout": "2s",
		"watch": watch, "sinks": sinks,
	})
	if err != nil {
		r.w.t.Fatal(err)
	}
	return string(text)
}

// real gives the names of namespaces.
func (r *run) real(letters []string) (names []string) {
	for _, l := range letters {
		names = append(names, r.names[l])
	}
	return names
}

func (r *run) yamlSink(s Sink) object {
	d := r.dests[s.Dest()]
	sink := object{"name": s.Name}
	if s.Payload != "" {
		sink["payload"] = s.Payload
	}
	if s.Progress {
		sink["progress"] = "1s"
	}
	buffer := object{}
	if s.Events > 0 {
		buffer["events"] = s.Events
	}
	if s.Small {
		buffer["bytes"], buffer["spill"] = "64Ki", object{"maxBytes": "1Mi"}
	}
	if s.Overflow != "" { // which applies when the disk is full too
		buffer["overflow"], buffer["spill"] = s.Overflow, object{"maxBytes": "64Ki"}
	}
	if len(buffer) > 0 {
		sink["buffer"] = buffer
	}
	if filter := r.yamlFilter(s.Filter); len(filter) > 0 {
		sink["filters"] = []object{filter}
	}
	const subject = ".{group}.{resource}.{namespace}.{name}"
	switch control := d.control.stream; {
	case s.Control == Apart && s.Kind.OnKafka():
		sink["controlEvents"] = object{"topic": control}
	case s.Control == Apart:
		sink["controlEvents"] = object{"subject": control + ".{group}.{resource}.{name}", "stream": control}
	}
	if s.Kind.OnKafka() {
		topic := object{
			"brokers": []string{d.proxy.Addr()}, "topic": d.stream,
			"createTopics": object{"partitions": 2, "replicationFactor": 1},
		}
		if s.Kind == CompactedTopic {
			topic["tombstones"] = true
		}
		sink["kafka"] = topic
		return sink
	}
	nats := object{"url": "nats://" + d.proxy.Addr(), "ackTimeout": "3s"}
	switch s.Kind {
	case Bucket:
		nats["bucket"], nats["stream"] = d.stream, object{"create": true}
	case Latest:
		nats["subject"], nats["stream"] = d.stream+subject, object{"name": d.stream, "create": true, "lastPerSubject": true}
	default:
		nats["subject"], nats["stream"] = d.stream+subject, object{"name": d.stream}
	}
	sink["nats"] = nats
	return sink
}

func (r *run) yamlFilter(f Filter) object {
	filter := object{}
	if len(f.Resources) > 0 {
		filter["resources"] = f.Resources
	}
	if len(f.Namespaces) > 0 {
		filter["namespaces"] = r.real(f.Namespaces)
	}
	if f.Team != "" {
		filter["when"] = fmt.Sprintf("object.metadata.?labels.?%s.orValue('') == '%s'", teamLabel, f.Team)
	}
	if f.Zone != "" {
		filter["namespaceSelector"] = zoneLabel + "=" + f.Zone
	}
	if f.Debounce > 0 {
		filter["debounce"] = f.Debounce.String()
	}
	return filter
}
