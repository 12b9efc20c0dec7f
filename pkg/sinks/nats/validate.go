package nats

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Validate implements [sinks.Config].
func (cfg *Config) Validate(at *strictyaml.Section) {
	switch {
	case len(cfg.URLs) == 0 && cfg.Embedded == nil:
		at.Report("", "has no server", "add url: nats://127.0.0.1:4222, or embedded: {} for a server in the bridge")
	case len(cfg.URLs) > 0 && cfg.Embedded != nil:
		at.Report("embedded", "is given besides url", "keep one of them")
	}
	cfg.Servers.Validate(at)
	if e := cfg.Embedded; e != nil && at.Fine("embedded") {
		at.Address("embedded.listen", e.Listen, false, "write 127.0.0.1:4222")
		at.NotEmpty("embedded.storeDir", e.StoreDir, "write ./data/nats")
		if !cfg.Stream.Create {
			at.Report(
				"stream.create",
				"is not true, and an embedded server begins without a stream",
				"write stream: {create: true}",
			)
		}
	}
	template := sinks.CheckTemplate(at, "subject", cfg.Subject, cfg.escape(), defaultSubject())
	cfg.validateStream(at.At("stream"), template)
	switch {
	case cfg.Bucket != "":
		cfg.validateBucket(at)
	case !cfg.Stream.LastPerSubject:
		if at.Has("stream.deletionsKeptFor") {
			at.Report("stream.deletionsKeptFor", "has no meaning without lastPerSubject",
				"remove it, or write lastPerSubject: true, or name a bucket")
		}
		return
	}
	cfg.validateMirror(at, template)
}

func defaultSubject() string { return strictyaml.Default[Config]().Subject }

// Validate reports invalid URLs and keys that exclude each other.
func (s *Servers) Validate(at *strictyaml.Section) {
	for _, server := range s.URLs {
		if addr, problem, remedy := parseURL(server); problem != "" {
			at.Report("url", problem, remedy)
		} else {
			at.Address("url", addr, true, remedy)
		}
	}
	at.AtMostOne("credentialsFile", "nkeyFile", "tokenFile", "user")
	at.Together("user", "passwordFile")
	s.TLS.Validate(at.At("tls"))
}

// parseURL returns the address of a server as host:port, or a problem with the URL. The problem never contains
// credentials.
func parseURL(server string) (addr, problem, remedy string) {
	if strings.Contains(server, "@") {
		return "", "has credentials in it: secrets are not in this file",
			"remove what is in front of the @, and use user and passwordFile, tokenFile, nkeyFile or credentialsFile"
	}
	u, addr, err := natsconn.ServerAddress(server)
	remedy = "write it as nats://host:4222; separate several by commas"
	switch {
	case err != nil || u.Host == "" || !strings.Contains(server, "://"):
		problem = strictyaml.Quote(server) + " is not the URL of a server"
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		problem, remedy = strictyaml.Quote(u.Scheme)+" is not a scheme of NATS", "write nats, tls, ws or wss"
	case strings.Trim(u.Path, "/") != "" && !strings.HasPrefix(u.Scheme, "ws") || u.RawQuery != "" || u.Fragment != "":
		problem = strictyaml.Quote(server) + " has more than scheme, host and port"
	}
	return addr, problem, remedy
}

// These are the server's rules for names. Names are also used as directory names.
var (
	streamName = regexp.MustCompile(`^[^\x00- .*>/\\\x7f-\x{10ffff}]{1,255}$`)
	bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,200}$`)
)

func (cfg *Config) validateStream(at *strictyaml.Section, template *event.Template) {
	s := &cfg.Stream
	if cfg.Bucket == "" && !streamName.MatchString(s.Name) {
		at.Report("name", strictyaml.Quote(s.Name)+" can't be the name of a stream", "use letters, digits, - and _")
	}
	if s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge {
		problem := fmt.Sprintf("%v is longer than maxAge, %v", s.DuplicateWindow, s.MaxAge)
		at.Report("duplicateWindow", problem, "make it at most as long")
	}
	valid := at.Fine("subjects")
	for i, subject := range s.Subjects {
		key := fmt.Sprintf("subjects[%d]", i)
		valid = valid && at.Fine(key)
		if problem := subjectProblem(subject); problem != "" {
			at.Report(key, strictyaml.Quote(subject)+" "+problem, "write it as k8s.> or k8s.*.pods.>")
			valid = false
			continue
		}
		if j := overlapping(subject, s.Subjects[:i]); j >= 0 {
			problem := fmt.Sprintf(
				"%s overlaps with subjects[%d], %s",
				strictyaml.Quote(subject),
				j,
				strictyaml.Quote(s.Subjects[j]),
			)
			at.Report(key, problem, "remove one of them")
		}
	}
	if template == nil || !s.Create || !valid || len(s.Subjects) == 0 {
		return
	}
	made := template.Wildcard()
	if !slices.ContainsFunc(s.Subjects, func(subject string) bool { return covers(subject, made) }) {
		at.Report("subjects", "the stream would not take what subject makes, "+strictyaml.Quote(made),
			"add "+strictyaml.Quote(made)+", or remove subjects to get just that")
	}
}

// validateBucket reports keys that can't be combined with a bucket.
func (cfg *Config) validateBucket(at *strictyaml.Section) {
	for _, key := range []string{"stream.name", "stream.subjects", "stream.lastPerSubject", "stream.discard"} {
		if at.Has(key) {
			at.Report(key, "is given besides bucket, which says it", "remove it")
		}
	}
	if strings.Contains(cfg.Subject, "$") {
		at.Report("subject", "has $ in it, which a key can't hold", "remove it: the subject is the key alone")
	}
}

// validateMirror checks the settings of a stream that keeps only the last message of each subject. template is nil if
// it is invalid.
func (cfg *Config) validateMirror(at *strictyaml.Section, template *event.Template) {
	s := &cfg.Stream
	if s.DeletionsKeptFor > 0 && s.DeletionsKeptFor < time.Second {
		at.Report(
			"stream.deletionsKeptFor",
			"is less than a second, the least that a server counts",
			"write 24h, or 0s to keep them forever",
		)
	}
	if template != nil {
		validateOneObject(at, template)
	}
	if s.MaxAge > 0 {
		at.Report(
			"stream.maxAge",
			"is given for a mirror: objects that did not change for so long would be missing",
			"remove it",
		)
	}
	if cfg.Bucket == "" && (s.MaxBytes > 0 || s.MaxMsgs > 0) &&
		s.Discard != "new" { // a full bucket always accepts no more messages
		at.Report(
			"stream.discard",
			"is not new, and a limit is given besides lastPerSubject: a full stream would forget objects",
			"write discard: new, with which the bridge waits",
		)
	}
}

// validateOneObject reports a template that yields the same subject for several objects, or different subjects for the
// events of one object. The group is required because two groups can have resources with the same name (services), and
// their objects often have the same names.
func validateOneObject(at *strictyaml.Section, t *event.Template) {
	for _, changing := range []string{"operation", "version"} {
		if t.Uses(changing) {
			at.Report("subject", "has {"+changing+"} in it, which is not the same for all events of an object: "+
				"its last state would not be the last of one subject", "use what stays the same for an object, as in "+defaultSubject())
			return
		}
	}
	if !t.Uses("uid") && !(t.Uses("group") && t.Uses("resource") && t.Uses("namespace") && t.Uses("name")) {
		at.Report(
			"subject",
			"is the same for several objects: with lastPerSubject, or in a bucket, one of them would be kept",
			"name them by {group}, {resource}, {namespace} and {name}, or by {uid}, as in "+defaultSubject(),
		)
	}
}

// ValidateLetters implements [sinks.Config].
func (cfg *Config) ValidateLetters(at *strictyaml.Section, to *sinks.LetterPlace) {
	if to.Topic != "" {
		at.Report("topic", "is for a sink with kafka", "write subject and stream, or file: {}")
	}
	switch {
	case to.Subject == "":
	case cfg.Embedded != nil:
		at.Report("subject", "is not for an embedded server", "write file: {}")
	case to.Stream == "" && at.Fine("stream"):
		at.Report("", "has a subject and no stream", "add the name of the stream that takes it, as in stream: DEAD")
	case to.Stream == cfg.resolved().Stream.Name:
		at.Report(
			"stream",
			"is the stream of the sink: it would take an event that is sent again for a repetition of its dead letter",
			"use a stream of its own",
		)
	}
}

// Conflict implements [sinks.Config].
func (cfg *Config) Conflict(at *strictyaml.Section, other sinks.Config, name string) bool {
	theirs, ok := other.(*Config)
	if !ok {
		return false
	}
	for _, c := range []*Config{cfg, theirs} {
		if (len(c.URLs) > 0) == (c.Embedded != nil) {
			return false // it is not known which server is used
		}
	}
	a, b := cfg.resolved(), theirs.resolved()
	shared := slices.ContainsFunc(a.hosts(), func(host string) bool { return slices.Contains(b.hosts(), host) })
	if a.Embedded != nil && b.Embedded != nil {
		shared = shared || filepath.Clean(a.Embedded.StoreDir) == filepath.Clean(b.Embedded.StoreDir)
		if shared {
			at.Report("embedded", "uses the address or the directory of the embedded server of "+name+" too",
				"give it others, or let this sink use url to reach that server")
		}
		return shared
	}
	if !shared {
		return false
	}
	key, problem, remedy := a.streamConflict(b, name)
	if problem != "" {
		at.Report(key, problem, remedy)
	}
	return problem != ""
}

// streamConflict returns the conflict between two streams on the same server. problem is empty if there is no conflict.
func (cfg *Config) streamConflict(b *Config, name string) (key, problem, remedy string) {
	nameKey, subjectKey, stream := "stream.name", "stream.subjects", strictyaml.Quote(cfg.Stream.Name)
	letters := cfg.LettersOf != ""
	if letters {
		nameKey, subjectKey = "stream", "subject"
	}
	ours, theirs := cfg.subjects(), b.subjects()
	switch same := cfg.Stream.Name == b.Stream.Name; {
	case same && !letters:
		return nameKey, stream + " is the stream of " + name + " too: it would take the events of one sink for repetitions of the other's",
			"use two streams, with subjects that do not overlap"
	case same && b.LettersOf == "":
		return nameKey, stream + " is the stream of " + name + ": its readers would take dead letters for its events", "use a stream of its own"
	case len(ours) == 0 || len(theirs) == 0: // a template is invalid
	case same && (cfg.Stream.Create && !covers(ours[0], theirs[0]) || b.Stream.Create && !covers(theirs[0], ours[0])):
		return nameKey, fmt.Sprintf(
				"%s is that of the dead letters of %s too, and is created for the subject of one of them: "+
					"%s does not take %s, or the other way round",
				stream,
				name,
				strictyaml.Quote(theirs[0]),
				strictyaml.Quote(ours[0]),
			),
			"use the same subject, or two streams"
	case !same && cfg.Stream.Create && b.Stream.Create:
		for _, subject := range ours {
			if n := overlapping(subject, theirs); n >= 0 {
				remedy = "begin the subjects of each stream with a word of its own"
				if letters {
					remedy = "begin it with a word of its own, as in dead.{cluster}.{resource}"
				}
				return subjectKey, fmt.Sprintf(
					"%s overlaps with %s, a subject of a stream of %s: a server takes a subject into one stream only",
					strictyaml.Quote(subject),
					strictyaml.Quote(theirs[n]),
					name,
				), remedy
			}
		}
	}
	return "", "", ""
}

// hosts returns the addresses of the servers as host:port in canonical spelling. Addresses with port 0 are left out,
// because no other server can have the same address.
func (cfg *Config) hosts() (hosts []string) {
	var addresses []string
	if cfg.Embedded != nil {
		addresses = []string{cfg.Embedded.Listen}
	}
	for _, server := range cfg.URLs {
		if addr, problem, _ := parseURL(server); problem == "" {
			addresses = append(addresses, addr)
		}
	}
	for _, addr := range addresses {
		if host, port, err := net.SplitHostPort(addr); err == nil && port != "0" {
			hosts = append(hosts, net.JoinHostPort(access.CanonicalHost(host), port))
		}
	}
	return hosts
}

// subjects returns the subjects that the stream would be created with. It returns nil if the template is invalid.
func (cfg *Config) subjects() []string {
	if len(cfg.Stream.Subjects) > 0 {
		return cfg.Stream.Subjects
	}
	template, err := event.ParseTemplate(cfg.Subject, cfg.escape())
	if err != nil {
		return nil
	}
	return []string{template.Wildcard()}
}

// Validate reports mistakes in the name and the servers of the object store.
func (c *PayloadConfig) Validate(at *strictyaml.Section) {
	if at.Has("bucket") && !bucketName.MatchString(c.Bucket) {
		at.Report(
			"bucket",
			strictyaml.Quote(c.Bucket)+" can't be the name of an object store",
			"use letters, digits, - and _",
		)
	}
	if c.NATS != nil && at.Fine("nats") {
		if len(c.NATS.URLs) == 0 {
			at.Report("nats.url", "is missing", "add url: nats://127.0.0.1:4222")
		}
		c.NATS.Validate(at.At("nats"))
	}
}
