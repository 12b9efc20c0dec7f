package evaluate

import (
	"fmt"
	"os"

	"go.yaml.in/yaml/v4"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// File is a test file.
type File struct {
	// The configuration to test, relative to the test file. If it is not set, the configuration of the command is tested.
	Config string `yaml:"config" format:"file" example:"bridge.yaml"`
	// The plural names of kinds, if they are not the usual ones. A kind can be written with its group:
	// `Sheep.example.com`.
	Resources map[string]string `yaml:"resources" example:"{Sheep: sheep}"`
	// Objects that exist before the first change of each test.
	Objects []*yaml.Node `yaml:"objects" example:"[{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]"`
	// The tests.
	Tests []Case `yaml:"tests" required:"true" minItems:"1" example:"[{name: ..., changes: [...], expect: {...}}]"`

	at *strictyaml.Section
}

// Case is one test.
type Case struct {
	// What the test shows.
	Name string `yaml:"name" required:"true" example:"a Pod that fails is sent"`
	// Objects that exist before the first change, in addition to those of the file.
	Objects []*yaml.Node `yaml:"objects" example:"[{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]"`
	// The changes, in their order.
	Changes []Change `yaml:"changes" required:"true" minItems:"1" example:"[add: {...}]"`
	// The events that each sink must be sent because of the changes, in their order. Sinks that are not named are not
	// compared.
	Expect map[string][]Event `yaml:"expect" required:"true" example:"{my-sink: []}"`

	story *story
}

// Change is a change of an object at the API server. Exactly one key is given.
type Change struct {
	// The new object.
	Add *yaml.Node `yaml:"add" oneOf:"true" example:"{apiVersion: v1, kind: Pod, ...}"`
	// What changes in the object (a JSON merge patch).
	Patch *yaml.Node `yaml:"patch" oneOf:"true" example:"{apiVersion: v1, kind: Pod, ...}"`
	// The object to delete.
	Delete *yaml.Node `yaml:"delete" oneOf:"true" example:"{apiVersion: v1, kind: Pod, ...}"`
}

// Event is an event that a sink must be sent. Only keys that are given are compared.
type Event struct {
	// The operation. `left` is a deletion of an object that still exists, but no longer passes the filters or `watch`.
	Operation string `yaml:"operation" required:"true" enum:"added updated deleted left" example:"added"`
	// The id of the event.
	ID string `yaml:"id" example:"pods/shop/web.1001"`
	// The NATS subject.
	Subject string `yaml:"subject" example:"k8s.local.core.pods.shop.web"`
	// The Kafka topic and key.
	Topic string `yaml:"topic" example:"k8s.pods"`
	Key   string `yaml:"key"   example:"local/core/pods/shop/web"`
	// Headers of the message. An empty value means that there is no such header.
	Headers map[string]string `yaml:"headers" example:"{Nats-TTL: 24h0m0s}"`
	// Attributes of the CloudEvent. An empty value means that there is no such attribute.
	Attributes map[string]string `yaml:"attributes" example:"{kind: Pod}"`
	// The data, or parts of it: keys of objects that are not given are not compared. Lists are compared as a whole.
	Data *yaml.Node `yaml:"data" example:"{spec: {replicas: 2}}"`
	// Paths that the data must not have.
	Absent []string `yaml:"absent" example:"[metadata.labels]"`

	data any
}

// load reads a test file. If the file cannot be read, the error is an *fs.PathError. Otherwise it joins all mistakes,
// each a *strictyaml.Mistake.
func load(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, at := strictyaml.Decode[File](path, text)
	f.at = at
	if at.Unreadable() {
		return f, at.Err()
	}
	for n := range f.Tests {
		c, at := &f.Tests[n], at.At(fmt.Sprintf("tests[%d]", n))
		at.NotEmpty("name", c.Name, "")
		for sink, events := range c.Expect {
			for i := range events {
				events[i].validate(at.At(fmt.Sprintf("expect[%q][%d]", sink, i)))
			}
		}
		c.story = f.tell(c, at)
	}
	return f, at.Err()
}

func (e *Event) validate(at *strictyaml.Section) {
	for n, path := range e.Absent {
		if _, err := object.ParsePath(path); err != nil {
			at.Report(fmt.Sprintf("absent[%d]", n), strictyaml.Quote(path)+" "+err.Error(), "example: metadata.labels")
		}
	}
	if e.Data != nil {
		var err error
		if e.data, err = decode[any](e.Data); err != nil {
			at.Report("data", err.Error(), "correct it")
		}
	}
}

// check reports sinks that the configuration does not have, or that are sent no changes.
func (f *File) check(cfg *config.Config) error {
	for n := range f.Tests {
		for sink := range f.Tests[n].Expect {
			key, s := fmt.Sprintf("tests[%d].expect[%q]", n, sink), cfg.Sink(sink)
			if s == nil {
				f.at.Report(key, "the configuration has no sink with this name",
					"write "+strictyaml.OrList(config.SinkNames(cfg.Sinks)))
			} else if s.IsAudit() {
				f.at.Report(key, "the sink is sent audit events, and no changes", "remove it")
			}
		}
	}
	return f.at.Err()
}

// line returns the line of a test.
func (f *File) line(test int) int { return f.at.Node(fmt.Sprintf("tests[%d]", test)).Line }
