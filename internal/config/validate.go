package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

// validator finds what is wrong with values that have the right type, and reports it where they stand.
type validator struct{ *decoder }

func (v *validator) config(c *Config) {
	if c.Cluster == "" || len(validation.IsValidLabelValue(c.Cluster)) > 0 {
		v.report("cluster", strconv.Quote(shorten(c.Cluster))+" can't be the name of a cluster", "use at most 63 letters, digits, -, _ and ., beginning and ending with a letter or digit")
	}
	v.notEmpty("state.path", c.State.Path, "write ./state")
	v.address("http.listen", c.HTTP.Listen, false, "write :8080 or 127.0.0.1:8080")
	if len(c.Watch) == 0 && !v.broken["watch"] {
		v.report("watch", "is empty: nothing would be watched", "remove the key to watch everything")
	}
	for i := range c.Watch {
		v.watch(fmt.Sprintf("watch[%d]", i), &c.Watch[i])
	}
	v.overlaps(c.Watch)
	if path := string(c.RedactionKeyFile); path != "" && !v.broken["redactionKeyFile"] {
		if info, err := os.Stat(path); err == nil && info.Size() < redact.MinKey {
			v.report("redactionKeyFile", fmt.Sprintf("%q has %d bytes, and the key needs at least %d", path, info.Size(), redact.MinKey), "make one: openssl rand -hex 32")
		}
	}
	for i := range c.Redact {
		v.redact(fmt.Sprintf("redact[%d]", i), &c.Redact[i])
	}
	if len(c.Sinks) == 0 && !v.broken["sinks"] {
		v.report("sinks", "is empty: the events would go nowhere", "add a sink, or remove the key to get an embedded JetStream server")
	}
	names := map[string]int{}
	for i := range c.Sinks {
		path := fmt.Sprintf("sinks[%d]", i)
		if v.broken[path] {
			continue
		}
		v.sink(path, &c.Sinks[i])
		name := c.Sinks[i].Name
		if first, ok := names[name]; ok && name != "" {
			v.report(path+".name", fmt.Sprintf("%q is the name of sinks[%d] too", name, first), "give each sink a name of its own")
		} else {
			names[name] = i
		}
	}
	v.conflicts(c.Sinks)
	v.letterConflicts(c.Sinks)
}

func (v *validator) notEmpty(path, text, remedy string) {
	if text == "" {
		v.report(path, "is empty", remedy)
	}
}

func (v *validator) watch(path string, w *Watch) {
	if v.broken[path] {
		return
	}
	if len(w.Resources) == 0 && v.has(path+".resources") {
		v.report(path+".resources", "is empty", "write [\"*\"] to watch everything")
	}
	v.patterns(path+".resources", w.Resources)
	v.patterns(path+".exclude", w.Exclude)
	v.namespaces(path+".namespaces", w.Namespaces)
	if _, err := labels.Parse(w.LabelSelector); err != nil {
		v.report(path+".labelSelector", oneLine(err), "write it as for kubectl get -l, for instance app in (web, api),tier!=test")
	}
	if _, err := fields.ParseSelector(w.FieldSelector); err != nil {
		v.report(path+".fieldSelector", oneLine(err), "write it as for kubectl get --field-selector, for instance spec.nodeName=node-1")
	}
}

func (v *validator) redact(path string, r *Redact) {
	if v.broken[path] {
		return
	}
	v.patterns(path+".resources", r.Resources)
	if len(r.Paths) == 0 && v.has(path+".paths") {
		v.report(path+".paths", "is empty: nothing would be hidden", "write [\"spec.containers[*].env[*].value\"]")
	}
	for i, text := range r.Paths {
		if _, err := redact.ParsePath(text); err != nil {
			v.report(fmt.Sprintf("%s.paths[%d]", path, i), strconv.Quote(shorten(text))+" "+oneLine(err), "write it as spec.containers[*].env[*].value")
		}
	}
}

func (v *validator) patterns(path string, texts []string) {
	for i, text := range texts {
		if _, err := filter.ParsePattern(text); err != nil {
			v.report(fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("%q: %s", shorten(text), oneLine(err)), remedyFor("resources"))
		}
	}
}

func (v *validator) namespaces(path string, entries []string) {
	_, err := filter.ParseNamespaces(entries)
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return
	}
	for _, err := range joined.Unwrap() {
		if entry, ok := errors.AsType[*filter.EntryError](err); ok {
			v.report(fmt.Sprintf("%s[%d]", path, entry.Index), oneLine(entry.Err), remedyFor("namespaces"))
		}
	}
}

// leastResync is the least that makes sense.
const leastResync = time.Minute

func (v *validator) sink(path string, s *Sink) {
	if len(validation.IsDNS1123Label(s.Name)) > 0 && v.has(path+".name") {
		v.report(path+".name", strconv.Quote(shorten(s.Name))+" can't be the name of a sink", "use at most 63 lower-case letters, digits and -, beginning and ending with a letter or digit")
	}
	v.filters(path+".filters", s.Filters)
	v.payload(path, s)
	if r := time.Duration(s.Resync); r > 0 && r < leastResync {
		v.report(path+".resync", fmt.Sprintf("is less than %v: the sink would be told everything without end", leastResync), "write 6h, or 0s for never")
	}
	v.refusals(path, s)
	v.enrich(path, s)

	var given []string
	for _, name := range []string{"nats", "kafka", "stdout"} {
		if v.has(path + "." + name) {
			given = append(given, name)
		}
	}
	switch {
	case len(given) > 1:
		v.report(path+"."+given[1], "is a second destination besides "+given[0], "make a sink of its own for each")
	case len(given) == 0 && s.NATS == nil && !v.confused[path]:
		v.report(path, "has no destination", "add nats, kafka or stdout")
	}
	if s.NATS != nil && !v.broken[path+".nats"] {
		v.nats(path+".nats", s.NATS)
	}
	if s.Kafka != nil && !v.broken[path+".kafka"] {
		v.kafka(path+".kafka", s.Kafka)
	}
}

// enrich reports what can't be added.
func (v *validator) enrich(path string, s *Sink) {
	at := path + ".enrich"
	switch {
	case !v.has(at) || v.broken[at] || v.confused[at]:
	case !s.Enrich.Wanted() && len(v.given(at, "owner", "namespaceLabels", "involvedObject")) == 0:
		v.report(at, "asks for nothing", "write owner: true, namespaceLabels: true or involvedObject: true")
	case s.Enrich.As == EnrichData && !v.broken[at+".as"] && !v.broken[path+".payload"] && s.Payload != PayloadChange && s.Payload != PayloadMetadata:
		v.report(at+".as", "is data, and payload: object is the object as the API server sent it, and nothing else", "write as: attributes, or payload: change or metadata")
	}
}

// payload reports what does not go together with a payload.
func (v *validator) payload(path string, s *Sink) {
	if v.broken[path+".payload"] {
		return
	}
	if s.Payload != PayloadChange {
		if v.has(path+".patch") && !v.broken[path+".patch"] {
			v.report(path+".patch", "has no meaning without payload: change", "remove it, or write payload: change")
		}
		return
	}
	if s.Buffer.Overflow == OverflowCompact {
		v.report(path+".buffer.overflow", "is compact, which gives up states between: a change would not say what changed", "write block or drop-oldest, or payload: object")
	}
}

// filters compiles the rules of a sink, each by itself, for the sake of its mistakes.
func (v *validator) filters(path string, filters []Filter) {
	rules := make([]filter.Rule, len(filters))
	for i, f := range filters {
		rules[i] = filter.Rule{
			Resources: f.Resources, Namespaces: f.Namespaces, Operations: f.Operations, When: f.When,
			IgnoreChanges: f.IgnoreChanges, OnlyChanges: f.OnlyChanges, Preset: f.Preset,
		}
	}
	_, mistakes := filter.Compile(rules, filter.Options{})
	for _, m := range mistakes {
		at := fmt.Sprintf("%s[%d].%s", path, m.Rule, m.Field)
		kind, _, _ := strings.Cut(m.Field, "[")
		node := v.nodes[at]
		if m.Line == 0 || node == nil {
			v.report(at, oneLine(m.Err), remedyFor(kind))
			continue
		}
		// An expression can have several mistakes, each with its own place.
		line, column := v.placeIn(node, offsetOf(node.Value, m.Line, m.Column))
		if !v.broken[at] {
			v.mistakes = append(v.mistakes, &Mistake{v.file, line, column, at, oneLine(m.Err), remedyFor(kind)})
		}
	}
}

// offsetOf is the byte of text that line and column, in characters from 1, point to.
func offsetOf(text string, line, column int) int {
	offset := 0
	for ; line > 1; line-- {
		n := strings.IndexByte(text[offset:], '\n')
		if n < 0 {
			break
		}
		offset += n + 1
	}
	for ; column > 1 && offset < len(text); column-- {
		_, size := utf8.DecodeRuneInString(text[offset:])
		offset += size
	}
	return offset
}

// template checks a template; nil if it is wrong.
func (v *validator) template(path, text string, escape event.Escape) *event.Template {
	t, err := event.ParseTemplate(text, escape)
	if err == nil {
		return t
	}
	mistake, ok := errors.AsType[*event.TemplateError](err)
	node := v.nodes[path]
	if !ok || node == nil {
		v.report(path, oneLine(err), "")
		return nil
	}
	line, column := v.placeIn(node, mistake.Offset)
	v.mistake(line, column, path, strconv.Quote(shorten(text))+": "+mistake.Reason, "as in "+v.exampleTemplate(escape))
	return nil
}

func (v *validator) exampleTemplate(escape event.Escape) string {
	switch escape {
	case event.EscapeSubject, event.EscapeKey:
		return defaulted[NATS]().Subject
	case event.EscapeTopic:
		return defaulted[Kafka]().Topic
	default:
		return defaulted[Kafka]().Key
	}
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?$`)

// address checks host:port. A host is needed to connect, but not to listen, and a port 0 is of use only to listen.
func (v *validator) address(path, text string, connect bool, remedy string) {
	host, port, err := net.SplitHostPort(text)
	number, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil:
		v.report(path, strconv.Quote(shorten(text))+" is no address of the form host:port", remedy)
	case portErr != nil || connect && number == 0:
		v.report(path, strconv.Quote(shorten(text))+" has no port from 1 to 65535", remedy)
	case host == "" && connect:
		v.report(path, strconv.Quote(shorten(text))+" has no host", remedy)
	case host != "" && net.ParseIP(host) == nil && !hostName.MatchString(host):
		v.report(path, strconv.Quote(shorten(text))+" has no valid host", remedy)
	}
}

// remedyFor is what to do about a condition of a filter, and of a watch.
func remedyFor(key string) string {
	switch key {
	case "resources":
		return "write pods, deployments.apps, deployments.v1.apps, *.example.com or *"
	case "namespaces":
		return "write names, globs as in team-*, exclusions as in !kube-system"
	case "operations":
		return "write added, updated, deleted or restated"
	case "ignoreChanges":
		return "write paths as in metadata.annotations or status.conditions[*].lastHeartbeatTime, or " + strings.Join(filter.ChangePresets(), ", ")
	case "onlyChanges":
		return "write paths as in spec or metadata.labels"
	default: // when
		return "it is CEL over object, old and operation"
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
