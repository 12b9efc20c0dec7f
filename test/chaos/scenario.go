package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Scenario is what one run does. It depends on nothing but its seed, or on what Shrink made of it.
type Scenario struct {
	Seed   uint64
	Kafka  bool // some sinks write to Kafka
	Config Config
	Steps  []Step
}

// Config is a configuration of the bridge. Namespaces are letters, which the runner replaces by the names of the run.
type Config struct {
	Watch []Watch
	Sinks []Sink
	Zones map[string]string // the labels of the namespaces, which belong to the cluster
}

// Watch is an entry of the configuration's watch.
type Watch struct {
	Resources  []string
	Namespaces []string `json:",omitempty"` // none: a glob over all namespaces of the run
	Team       string   `json:",omitempty"` // label selector; empty: none
}

// Filter is a sink's only filter. Its zero value lets everything pass.
type Filter struct {
	Resources  []string      `json:",omitempty"`
	Namespaces []string      `json:",omitempty"`
	Team       string        `json:",omitempty"` // a condition on the object
	Zone       string        `json:",omitempty"` // selects namespaces by their label
	Debounce   time.Duration `json:",omitempty"` // for which updates wait
}

// Sink is one sink.
type Sink struct {
	Name   string
	Place  string `json:",omitempty"` // its destination; empty: one that is named as the sink
	Kind   Kind
	Filter Filter `json:",omitzero"`
	// Payload is empty for the default. Overflow is empty for the default, with room on disk; else there is little.
	Payload, Overflow string `json:",omitempty"`

	Events int  `json:",omitempty"` // of the buffer in memory; 0: the default
	Small  bool `json:",omitempty"` // the buffer has little room on disk and, in bytes, in memory
	// Limit: the stream takes messages up to messageLimit. What is larger is sent with the metadata of its object.
	Limit bool `json:",omitempty"`
	// Control says where control events go: together with the objects if it is empty.
	Control  Control `json:",omitempty"`
	Progress bool    `json:",omitempty"` // progress events are sent each second
	// ShortWindow makes the stream forget the ids of messages after seconds, so that repetitions are seen.
	ShortWindow bool `json:",omitempty"`
}

// Control says where a sink sends its control events.
type Control string

// Apart is another topic or stream than that of the objects.
const Apart Control = "apart"

// Dest is the sink's destination. Steps, faults and events name it.
func (s Sink) Dest() string {
	if s.Place != "" {
		return s.Place
	}
	return s.Name
}

// Kind says what kind of destination a sink has.
type Kind string

// The kinds of destinations.
const (
	Stream         Kind = "stream"
	Latest         Kind = "latest" // a stream of the last message of each subject
	Bucket         Kind = "bucket"
	Topic          Kind = "topic"
	CompactedTopic Kind = "compacted-topic" // with tombstones
)

// OnKafka reports whether the destination is a topic.
func (k Kind) OnKafka() bool { return k == Topic || k == CompactedTopic }

// LastOnly reports whether the destination holds last states and no history.
func (k Kind) LastOnly() bool { return k == Latest || k == Bucket }

// Action is what a step does.
type Action string

// The actions. Each is possible at any time, and does nothing where it makes no sense: so steps can be left out.
const (
	Write      Action = "write"      // Count changes, drawn from Seed, Pause between two; in the background
	Await      Action = "await"      // the end of all writes
	Pause      Action = "pause"      // for Pause
	Kill       Action = "kill"       // kill -9 of the bridge
	Term       Action = "term"       // SIGTERM, and wait for the end
	Start      Action = "start"      // of the bridge, unless it runs
	Configure  Action = "configure"  // use another configuration from the next start on
	Reload     Action = "reload"     // use the configured configuration now, without a restart
	Away       Action = "away"       // the destination Sink refuses connections
	Hang       Action = "hang"       // the destination Sink accepts connections and answers nothing
	Late       Action = "late"       // existing connections to Sink hang: what was sent there arrives when it is back
	Cut        Action = "cut"        // the connections to Sink break
	Back       Action = "back"       // the destination Sink is back
	Forget     Action = "forget"     // the API server forgets its history, of resources without watch cache
	RestartAPI Action = "restartAPI" // the API server is killed and started: it forgets the history of all resources
	HangAPI    Action = "hangAPI"    // the API server answers nothing
	BackAPI    Action = "backAPI"    // the API server answers again
	FillDisk   Action = "fillDisk"   // no space on the disk of the state
	FreeDisk   Action = "freeDisk"
	Lose       Action = "lose"       // the file of the checkpoint is removed, unless the bridge runs
	Resync     Action = "resync"     // of the sink that writes to Sink
	PauseSink  Action = "pauseSink"  // bridge pause, for the sink that writes to Sink
	ResumeSink Action = "resumeSink" // bridge resume
	Label      Action = "label"      // the namespace Namespace is now in Zone; then Pause; nothing else happens meanwhile
	Settle     Action = "settle"     // end all faults, and wait until everything has arrived
)

// Step is one step of a scenario. Which fields count depends on Action.
type Step struct {
	Action Action
	Sink   string        `json:",omitempty"`
	Seed   uint64        `json:",omitempty"`
	Count  int           `json:",omitempty"`
	Pause  time.Duration `json:",omitempty"`
	Config *Config       `json:",omitempty"`

	Namespace, Zone string `json:",omitempty"`
}

// String is the scenario as people read it.
func (s Scenario) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, kafka=%t\n%s", s.Seed, s.Kafka, s.Config)
	for n, step := range s.Steps {
		fmt.Fprintf(&b, "%3d %s\n", n, step)
	}
	return b.String()
}

// String is the step in one line, unless it brings a configuration.
func (s Step) String() string {
	text := string(s.Action)
	if s.Sink != "" {
		text += " " + s.Sink
	}
	if s.Count > 0 {
		text += fmt.Sprintf(" %d changes (seed %d), one each", s.Count, s.Seed)
	}
	if s.Zone != "" {
		text += " " + s.Namespace + "=" + s.Zone
	}
	if s.Pause > 0 {
		text += " " + s.Pause.String()
	}
	if s.Config != nil {
		text += "\n" + strings.TrimRight(s.Config.String(), "\n")
	}
	return text
}

// String has a line of JSON for each part.
func (c Config) String() string {
	var b strings.Builder
	line := func(name string, part any) {
		text, _ := json.Marshal(part) // it is plain data
		fmt.Fprintf(&b, "    %s %s\n", name, text)
	}
	for _, w := range c.Watch {
		line("watch", w)
	}
	for _, s := range c.Sinks {
		line("sink", s)
	}
	line("zones", c.Zones)
	return b.String()
}

// At gives the sink that writes to a destination; nil if there is none.
func (c Config) At(dest string) *Sink {
	if n := slices.IndexFunc(c.Sinks, func(s Sink) bool { return s.Dest() == dest }); n >= 0 {
		return &c.Sinks[n]
	}
	return nil
}

// Clone is a deep copy.
func (c Config) Clone() Config {
	c.Watch, c.Sinks, c.Zones = slices.Clone(c.Watch), slices.Clone(c.Sinks), maps.Clone(c.Zones)
	for n := range c.Watch {
		c.Watch[n].Resources, c.Watch[n].Namespaces = slices.Clone(c.Watch[n].Resources), slices.Clone(c.Watch[n].Namespaces)
	}
	for n := range c.Sinks {
		f := &c.Sinks[n].Filter
		f.Resources, f.Namespaces = slices.Clone(f.Resources), slices.Clone(f.Namespaces)
	}
	return c
}

// covers reports whether objects of a resource and a namespace are watched, whatever their labels.
func (c Config) covers(resource, namespace string) bool {
	return slices.ContainsFunc(c.Watch, func(w Watch) bool {
		return slices.Contains(w.Resources, resource) && (len(w.Namespaces) == 0 || slices.Contains(w.Namespaces, namespace))
	})
}

// passes reports whether a state is for the sink of a destination.
func (c Config) passes(dest string, r *Rev) bool {
	s := c.At(dest)
	if s == nil || r == nil || r.Deleted {
		return false
	}
	watched := slices.ContainsFunc(c.Watch, func(w Watch) bool {
		return slices.Contains(w.Resources, r.Resource) &&
			(len(w.Namespaces) == 0 || slices.Contains(w.Namespaces, r.Namespace)) &&
			(w.Team == "" || w.Team == r.Team)
	})
	f := s.Filter
	return watched && (len(f.Resources) == 0 || slices.Contains(f.Resources, r.Resource)) &&
		(len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, r.Namespace)) && (f.Team == "" || f.Team == r.Team) &&
		(f.Zone == "" || f.Zone == c.Zones[r.Namespace])
}
