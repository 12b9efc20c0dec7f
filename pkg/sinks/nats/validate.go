package nats

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Validate implements [sinks.Config].
func (cfg *Config) Validate(at *strictyaml.Section) {
	switch {
	case len(cfg.URLs) == 0 && cfg.Embedded == nil:
		at.Report("", "has no server", "add url: nats://127.0.0.1:4222, or embedded: {} for a server in the bridge")
	case len(cfg.URLs) > 0 && cfg.Embedded != nil:
		at.Report("embedded", "cannot be used together with url", "keep one of them")
	}
	cfg.Servers.Validate(at)
	if e := cfg.Embedded; e != nil && at.Fine("embedded") {
		for _, key := range at.Given("domain", "apiPrefix") {
			at.Report(key, "cannot be used together with embedded", "remove it")
		}
		at.Address("embedded.listen", e.Listen, false, "write 127.0.0.1:4222")
		at.NotEmpty("embedded.storeDir", e.StoreDir, "write ./data/nats")
		if !cfg.Stream.Create {
			at.Report("stream.create", "must be true, because an embedded server starts without a stream",
				"write stream: {create: true}")
		}
	}
	template := sinks.CheckTemplate(at, "subject", cfg.Subject, cfg.escape(), defaultSubject())
	cfg.validateStream(at.At("stream"), template)
	cfg.validateBucket(at)
	if cfg.resolved().Stream.LastPerSubject {
		cfg.validateLatest(at, template)
	} else if at.Has("stream.deletionsKeptFor") {
		at.Report("stream.deletionsKeptFor", "has no effect without lastPerSubject or bucket",
			"remove it, or write lastPerSubject: true, or name a bucket")
	}
}

func defaultSubject() string { return strictyaml.Default[Config]().Subject }

// These are the server's rules for names. Names are also used as directory names.
const (
	streamName = `^[^\x00- .*>/\\\x7f-\x{10ffff}]{1,255}$`
	bucketName = `^[A-Za-z0-9_-]{1,240}$`
)

// validateName reports a stream or bucket name that the server does not accept. valid is one of the rules. It is not
// kept compiled, because a count of 255 needs 0.2 MB.
func validateName(at *strictyaml.Section, key, name, valid string) {
	if !regexp.MustCompile(valid).MatchString(name) {
		at.Report(key, strictyaml.Quote(name)+" is not a valid name", "use letters, digits, - and _")
	}
}

func (cfg *Config) validateStream(at *strictyaml.Section, template *event.Template) {
	s := &cfg.Stream
	if cfg.Bucket == "" {
		validateName(at, "name", s.Name, streamName)
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		problem := fmt.Sprintf("%v is longer than maxAge, which is %v", s.DuplicateWindow, s.MaxAge)
		at.Report("duplicateWindow", problem, "set it to at most maxAge")
	}
	valid := at.Fine("subjects")
	for i, subject := range s.Subjects {
		key := fmt.Sprintf("subjects[%d]", i)
		if !server.IsValidSubject(subject) {
			at.Report(key, strictyaml.Quote(subject)+" is not a valid subject", "write it as k8s.> or k8s.*.pods.>")
		}
		valid = valid && at.Fine(key)
	}
	if template == nil || !s.Create || !valid || len(s.Subjects) == 0 {
		return
	}
	wildcard := template.Wildcard()
	if !natscheck.Covers(s.Subjects, wildcard) {
		at.Report("subjects", "does not contain the subjects of the events, "+strictyaml.Quote(wildcard),
			"add "+strictyaml.Quote(wildcard)+", or remove subjects to use only this one")
	}
}

// validateBucket reports keys that can't be combined with a bucket.
func (cfg *Config) validateBucket(at *strictyaml.Section) {
	if cfg.Bucket == "" {
		return
	}
	validateName(at, "bucket", cfg.Bucket, bucketName)
	for _, key := range []string{"stream.name", "stream.subjects", "stream.lastPerSubject", "stream.discard"} {
		if at.Has(key) {
			at.Report(key, "cannot be used together with bucket", "remove it")
		}
	}
	if strings.Contains(cfg.Subject, "$") {
		at.Report("subject", "contains $, which is not allowed in a key", "write the key without $KV and the bucket name")
	}
}

// validateLatest checks the settings of a stream that keeps only the last message of each subject. template is nil if
// it is invalid. The template must yield one subject per object, which is the same for all events of the object. The
// group is required because two groups can have resources with the same name (services), and their objects often have
// the same names.
func (cfg *Config) validateLatest(at *strictyaml.Section, template *event.Template) {
	s := &cfg.Stream
	if s.DeletionsKeptFor > 0 && s.DeletionsKeptFor < time.Second {
		at.Report("stream.deletionsKeptFor", "is less than a second", "write 24h, or 0s to keep deletions forever")
	}
	if s.MaxAge > 0 {
		at.Report("stream.maxAge", "would remove objects that do not change", "remove it")
	}
	if cfg.Bucket == "" && s.MaxBytes > 0 && s.Discard != "new" { // a full bucket always waits
		at.Report("stream.discard", `cannot be "old": a full stream would remove objects`,
			"write discard: new, with which the bridge waits")
	}
	if template == nil {
		return
	}
	uses := template.Uses
	switch {
	case uses("operation") || uses("version"):
		at.Report("subject", "contains {operation} or {version}, which differ between the events of an object",
			"remove it, as in "+defaultSubject())
	case !uses("uid") && !(uses("group") && uses("resource") && uses("namespace") && uses("name")):
		at.Report("subject", "is the same for several objects, and only one of them would be kept",
			"use {group}, {resource}, {namespace} and {name}, or {uid}, as in "+defaultSubject())
	}
}

// ValidatePlace implements [sinks.Config].
func (cfg *Config) ValidatePlace(at *strictyaml.Section, to *sinks.ControlPlace) {
	if to.Topic != "" {
		at.Report("topic", "is only for a sink with kafka", "write subject and stream")
	}
	switch {
	case to.Subject == "":
	case to.Stream == "" && at.Fine("stream"):
		at.Report("", "has a subject, but no stream", "add the stream that has the subject, as in stream: NAME")
	case to.Stream == cfg.resolved().Stream.Name:
		at.Report("stream", "is the stream of the sink", "use another stream")
	}
}

// ValidateProgress implements [sinks.Config]. A stream is one sequence, whatever its subjects are.
func (*Config) ValidateProgress(*strictyaml.Section) {}

// Conflict implements [sinks.Config].
func (cfg *Config) Conflict(at *strictyaml.Section, other sinks.Config, name string) bool {
	theirs, ok := other.(*Config)
	if !ok {
		return false
	}
	a, b := cfg.resolved(), theirs.resolved()
	shared := access.ShareServer(a.addresses(), b.addresses())
	switch {
	case a.Embedded == nil || b.Embedded == nil:
		sameAccount := a.APIPrefix == b.APIPrefix || a.Auth == b.Auth && a.TLS == b.TLS
		return shared && sameAccount && a.streamConflict(at, b, name)
	case shared || filepath.Clean(a.Embedded.StoreDir) == filepath.Clean(b.Embedded.StoreDir):
		at.Report("embedded", "has the same address or directory as the embedded server of "+name,
			"change it, or use url to connect to that server")
		return true
	}
	return false
}

// streamConflict reports a conflict between two streams on the same server. It returns false if there is no conflict.
func (cfg *Config) streamConflict(at *strictyaml.Section, b *Config, name string) bool {
	nameKey, subjectKey := "stream.name", "stream.subjects"
	if cfg.LettersOf != "" || cfg.OnlyControl {
		nameKey, subjectKey = "stream", "subject"
	}
	// Messages pass from one domain or account to another, except those to buckets. So both streams would store the events
	// of both sinks, whatever their filters are.
	apart := cfg.API() != b.API()
	same, ours, theirs := cfg.Stream.Name == b.Stream.Name && !apart, cfg.subjects(), b.subjects()
	switch {
	case same && (cfg.LettersOf == "" || b.LettersOf == ""):
		at.Report(nameKey, strictyaml.Quote(cfg.Stream.Name)+" is also the stream of "+name, "use another stream")
		return true
	case len(ours) == 0 || len(theirs) == 0: // a template is invalid
		return false
	case same && (cfg.Stream.Create || b.Stream.Create) && !slices.Equal(ours, theirs):
		const problem = "%q differs from %q, the subjects with which %s creates the same stream"
		at.Report(subjectKey, fmt.Sprintf(problem, ours, theirs, name), "use the same subject, or another stream")
		return true
	case same || !apart && (!cfg.Stream.Create || !b.Stream.Create), apart && cfg.Bucket != "":
		return false
	}
	for _, subject := range ours {
		if n := slices.IndexFunc(theirs, func(s string) bool { return server.SubjectsCollide(subject, s) }); n >= 0 {
			problem := "%q overlaps with %q of %s: two streams cannot have the same subject"
			if apart {
				problem += ", even in different domains or accounts"
			}
			at.Report(subjectKey, fmt.Sprintf(problem, subject, theirs[n], name),
				"begin the subjects of each stream with a different word")
			return true
		}
	}
	return false
}

// addresses returns the addresses of the servers as host:port.
func (cfg *Config) addresses() (addresses []string) {
	if cfg.Embedded != nil {
		addresses = []string{cfg.Embedded.Listen}
	}
	for _, raw := range cfg.URLs {
		if addr, problem, _ := natsconn.ParseURL(raw); problem == "" {
			addresses = append(addresses, addr)
		}
	}
	return addresses
}

// subjects returns the subjects that the stream would be created with. It returns nil if the template is invalid.
func (cfg *Config) subjects() []string {
	if len(cfg.Stream.Subjects) > 0 {
		return cfg.Stream.Subjects
	}
	if template := cfg.Place(); template != nil {
		return []string{template.Wildcard()}
	}
	return nil
}

// Validate reports mistakes in the name and the servers of the object store.
func (c *PayloadConfig) Validate(at *strictyaml.Section) {
	if at.Has("bucket") {
		validateName(at, "bucket", c.Bucket, bucketName)
	}
	if c.NATS != nil && at.Fine("nats") {
		if len(c.NATS.URLs) == 0 {
			at.Report("nats.url", "is missing", "add url: nats://127.0.0.1:4222")
		}
		c.NATS.Validate(at.At("nats"))
	}
}
