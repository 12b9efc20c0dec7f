package kafka

import (
	"strings"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Validate implements [sinks.Config].
func (cfg *Config) Validate(at *strictyaml.Section) {
	cfg.wire().Validate(at)
	if cfg.SchemaRegistry != nil && at.Fine("schemaRegistry") {
		cfg.SchemaRegistry.Validate(at.At("schemaRegistry"))
	}
	topic := sinks.CheckTemplate(at, "topic", cfg.Topic, event.EscapeTopic, defaults().Topic)
	if topic != nil && cfg.Tombstones && topic.Uses("operation") {
		at.Report("topic", "contains {operation}: with tombstones, a deleted object would stay in another topic",
			"use "+defaults().Topic)
	}
	cfg.validateKey(at, topic)
}

// validateKey checks the record key, which determines the order of records and which records a compacted topic keeps.
// topic is nil if the topic template is invalid.
func (cfg *Config) validateKey(at *strictyaml.Section, topic *event.Template) {
	key := sinks.CheckTemplate(at, "key", cfg.Key, event.EscapeNone, defaults().Key)
	if key == nil {
		return
	}
	switch {
	case key.Uses("operation"):
		at.Report("key", "contains {operation}: the events of an object would be out of order",
			"use only variables that do not change for an object, as in "+defaults().Key)
	case cfg.Tombstones && topic != nil && !nameOneObject(topic, key):
		at.Report("key", "is the same for several objects: with tombstones, a topic would keep only one of them",
			"use {group}, {resource}, {namespace} and {name}, or {uid}, as in "+defaults().Key)
	}
	if !cfg.Tombstones || cfg.CreateTopics == nil {
		return
	}
	if policy, given := cfg.CreateTopics.Config[cleanupPolicy]; given && !strings.Contains(policy, "compact") {
		at.Report("createTopics.config", "has cleanup.policy "+policy+", with which tombstones have no effect",
			"write compact, or remove cleanup.policy, which is then compact")
	}
}

// nameOneObject reports whether every object has a different key within a topic. The variable {name} must be in the
// key, because characters that a topic name cannot contain are all replaced by "-".
func nameOneObject(topic, key *event.Template) bool {
	either := func(variable string) bool { return topic.Uses(variable) || key.Uses(variable) }
	return either("uid") || key.Uses("name") && either("group") && either("resource") && either("namespace")
}

// ValidatePlace implements [sinks.Config].
func (cfg *Config) ValidatePlace(at *strictyaml.Section, to *sinks.ControlPlace) {
	switch {
	case to.Subject != "":
		at.Report("subject", "is only for a sink with nats", "write topic")
	case to.Topic != "" && to.Topic == cfg.Topic:
		at.Report("topic", "is the topic of the sink", "choose another topic")
	}
}

// ValidateProgress implements [sinks.Config]. The sink must know all topics of a resource.
func (cfg *Config) ValidateProgress(at *strictyaml.Section) {
	if topic := cfg.Place(); topic != nil && !located(topic) {
		at.Report("progress", "requires that all objects of a resource go to one topic, but the topic is "+
			strictyaml.Quote(cfg.Topic), "in kafka.topic, use only {cluster}, {group} and {resource}, or remove progress")
	}
}

// Conflict implements [sinks.Config]. It reports an error if dead letters or control events would be sent to a topic
// for other messages.
func (cfg *Config) Conflict(at *strictyaml.Section, other sinks.Config, name string) bool {
	theirs, ok := other.(*Config)
	if !ok || cfg.Topic != theirs.Topic || cfg.role == theirs.role && cfg.role != controlEvents ||
		!access.ShareServer(cfg.Brokers, theirs.Brokers) {
		return false
	}
	of, problem := name, ": its consumers would read "+string(cfg.role)+" as events"
	if theirs.role != events {
		of, problem = "the "+string(theirs.role)+" of "+name, ""
	}
	at.Report("topic", strictyaml.Quote(cfg.Topic)+" is the topic of "+of+problem, "choose another topic")
	return true
}
