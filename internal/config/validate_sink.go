package config

import (
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/enrich"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
)

// leastResync is the minimum resync interval. With shorter intervals, the sink would re-send objects almost
// continuously.
const leastResync = time.Minute

func (s *Sink) validate(at *strictyaml.Section) {
	if len(validation.IsDNS1123Label(s.Name)) > 0 && at.Has("name") {
		at.Report("name", strictyaml.Quote(s.Name)+" is not a valid sink name",
			"use at most 63 lower-case letters, digits and -, beginning and ending with a letter or digit")
	}
	s.validateFilters(at)
	s.validateEvents(at)
	s.validatePayload(at)
	s.validateContent(at)
	if s.Resync > 0 && s.Resync < leastResync {
		at.Report("resync", fmt.Sprintf("is less than %v: the bridge would re-send all objects continuously", leastResync),
			"write 6h, or 0s for never")
	}
	s.validateProgress(at)
	s.validateRejections(at)
	if s.ControlEvents != nil && at.Fine("controlEvents") {
		s.validateControlEvents(at)
	}
	s.validateEnrich(at)
	s.validateDestinations(at)
}

// validateContent reports a content mode that the format of a schema registry does not have.
func (s *Sink) validateContent(at *strictyaml.Section) {
	if s.Kafka == nil || s.Kafka.SchemaRegistry == nil {
		return
	}
	switch format := s.Kafka.SchemaRegistry.Format; {
	case format == kafka.FormatAvro && at.Has("content"):
		at.Report("content", "has no effect with the format avro of kafka.schemaRegistry, which has the attributes as fields",
			"remove it")
	case format == kafka.FormatJSON && s.Content != event.ContentStructured && at.Fine("content"):
		at.Report("content", "must be structured with the format json of kafka.schemaRegistry, whose schema describes the "+
			"whole event", "write content: structured")
	}
}

// leastProgress is the minimum interval of progress events.
const leastProgress = time.Second

func (s *Sink) validateProgress(at *strictyaml.Section) {
	if s.Progress == 0 || !at.Fine("progress") {
		return
	}
	if s.Progress < leastProgress {
		at.Report("progress", fmt.Sprintf("is less than %v", leastProgress), "write 10s, or 0s for never")
	}
	if destination := s.Destinations.Destination(); destination != nil {
		destination.ValidateProgress(at)
	}
}

func (s *Sink) validateDestinations(at *strictyaml.Section) {
	var kinds []string
	v := reflect.ValueOf(&s.Destinations).Elem()
	for _, f := range strictyaml.Fields(v.Type()) {
		kinds = append(kinds, f.Name)
		if field := v.FieldByIndex(f.Index); !field.IsNil() && at.Fine(f.Name) {
			field.Interface().(sinks.Config).Validate(at.At(f.Name))
		}
	}
	switch given := at.Given(kinds...); {
	case len(given) > 1:
		at.Report(given[1], "cannot be used together with "+given[0], "configure one sink for each destination")
	case len(given) == 0 && s.Destination() == nil:
		at.Report("", "has no destination", "add "+strictyaml.OrList(kinds))
	}
}

// validateEnrich reports invalid combinations of enrich settings and payload.
func (s *Sink) validateEnrich(at *strictyaml.Section) {
	needs := []string{"enrich.owner", "enrich.namespaceLabels", "enrich.involvedObject"}
	switch {
	case !at.Has("enrich") || !at.Fine("enrich"):
	case s.Enrich == (enrich.Needs{}) && len(at.Given(needs...)) == 0:
		at.Report("enrich", "selects no data", "write owner: true, namespaceLabels: true or involvedObject: true")
	}
}

// validatePayload reports settings that are incompatible with the payload.
func (s *Sink) validatePayload(at *strictyaml.Section) {
	switch {
	case !at.Fine("payload"):
	case (s.Payload == event.PayloadChange || s.Payload == event.PayloadDebezium) && s.Buffer.Overflow == OverflowCompact:
		at.Report("buffer.overflow",
			"is compact, which discards intermediate states: the event would not contain all changes since the previous one",
			"write block or drop-oldest, or payload: object")
	}
}

// validateRejections checks the settings for events that the destination rejects.
func (s *Sink) validateRejections(at *strictyaml.Section) {
	if s.Stdout != nil {
		for _, key := range []string{"oversize", "claimCheck", "deadLetter"} {
			if at.Has(key) {
				at.Report(key, "has no effect for stdout, which accepts every event", "remove it")
			}
		}
		return
	}
	switch {
	case !at.Fine("oversize"):
	case s.Oversize == sinks.OutcomeClaimCheck && !at.Has("claimCheck"):
		at.Report("oversize", "is claimCheck, but the sink has no claimCheck section",
			"add claimCheck: {bucket: k8s-claims, create: true}")
	case s.Oversize == sinks.OutcomeDeadLetter && !at.Has("deadLetter"):
		at.Report("oversize", "is deadLetter, but the sink has no deadLetter section", "add "+s.deadLetterExample())
	case s.Oversize == sinks.OutcomeDeadLetter && s.NATS != nil:
		at.Warn("oversize", "does not keep an event that exceeds the server's max_payload, because no subject accepts it",
			"if events can be that large, write oversize: claimCheck")
	}
	if c := s.ClaimCheck; c != nil && at.Fine("claimCheck") {
		if s.Oversize != sinks.OutcomeClaimCheck && at.Fine("oversize") {
			at.Report("claimCheck", "is set, but oversize is not claimCheck", "write oversize: claimCheck, or remove it")
		}
		c.Validate(at.At("claimCheck"))
		if s.NATS == nil && s.Destination() != nil && !at.Has("claimCheck.nats") {
			at.Report("claimCheck", "requires a nats section, because the sink does not write to NATS",
				"add nats: {url: nats://127.0.0.1:4222}")
		}
	}
	if s.DeadLetter != nil && at.Fine("deadLetter") {
		s.validateDeadLetter(at.At("deadLetter"))
	}
}

func (s *Sink) validateDeadLetter(at *strictyaml.Section) {
	switch given := at.Given("topic", "subject"); {
	case len(given) > 1:
		at.Report(given[1], "cannot be used together with "+given[0], "keep one of them")
	case len(given) == 0:
		at.Report("", "has no destination", "write "+s.deadLetterExample())
	case s.NATS != nil && s.NATS.Embedded != nil:
		at.Report("", "cannot be used with an embedded server", "remove it, or use nats.url")
		return
	}
	s.validatePlace(at, sinks.ControlPlace(*s.DeadLetter), "dead-letters.{cluster}", "dead.{cluster}.{resource}")
}

// deadLetterExample returns a valid deadLetter section for the destination of the sink.
func (s *Sink) deadLetterExample() string {
	if s.NATS != nil {
		return `deadLetter: {subject: "dead.{resource}", stream: DEAD}`
	}
	return "deadLetter: {topic: dead-letters}"
}

// validatePlace checks a place. topic and subject are examples of valid ones.
func (s *Sink) validatePlace(at *strictyaml.Section, place sinks.ControlPlace, topic, subject string) {
	if place.Topic != "" {
		sinks.CheckTemplate(at, "topic", place.Topic, event.EscapeTopic, topic)
	}
	if place.Subject != "" {
		sinks.CheckTemplate(at, "subject", place.Subject, event.EscapeSubject, subject)
	} else if place.Stream != "" {
		at.Report("stream", "has no effect without subject", "remove it, or add subject")
	}
	if destination := s.Destinations.Destination(); destination != nil {
		destination.ValidatePlace(at, &place)
	}
}

// validateControlEvents checks where control events are sent, and warns of what consumers must know.
func (s *Sink) validateControlEvents(sink *strictyaml.Section) {
	c, at := s.ControlEvents, sink.At("controlEvents")
	switch given := at.Given("topic", "subject"); {
	case len(given) > 1:
		at.Report(given[1], "cannot be used together with "+given[0], "keep one of them")
	case len(given) == 0:
		at.Report("", "has no destination", "add topic or subject")
	default:
		at.Warn("", "gap events can be read later than the events that follow the gap, or not at all",
			"let each consumer that keeps states read them too, and compare their position")
	}
	s.validatePlace(at, *c, "k8s-control", "k8s-control.{cluster}.{group}.{resource}")
}
