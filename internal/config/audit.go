package config

import (
	"fmt"
	"net"
	"strings"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/filter"
)

// The valid values of Sink.Events.
const (
	EventsChanges = "changes"
	EventsAudit   = "audit"
)

// Audit configures the endpoint that receives audit events from API servers (the audit webhook backend). The bridge
// stores them in the state directory, and sends them to the sinks with `events: audit`. API servers must authenticate
// with a client certificate or a token. See docs/delivery.md#audit-events.
type Audit struct {
	// The address to listen on, as `host:port`. Without a host, the server listens on all addresses. Without
	// `certFile`, it must be a loopback address.
	Listen string `yaml:"listen" pattern:":[0-9]+$" default:"\":8443\"" example:"127.0.0.1:8443"`
	// A PEM file with the certificate of the server, and its chain. The bridge reads it for each connection, so that a
	// renewed certificate requires no restart.
	CertFile string `yaml:"certFile" format:"file" example:"/etc/deltabridge/audit/tls.crt"`
	// A PEM file with the key of the certificate.
	KeyFile string `yaml:"keyFile" format:"file" example:"/etc/deltabridge/audit/tls.key"`
	// A PEM file with the CAs of the client certificates that the bridge accepts.
	ClientCAFile string `yaml:"clientCAFile" format:"file" example:"/etc/deltabridge/audit/ca.crt"`
	// The common names that a client certificate may have. If the list is empty, every certificate of these CAs is
	// accepted. It is required if the CA issues certificates for others too, as the CA of a cluster does.
	ClientNames []string `yaml:"clientNames" example:"[kube-apiserver-audit]"`
	// A file that contains the bearer tokens that the bridge accepts, separated by white space. The bridge reads it for
	// each request, so that tokens can be rotated.
	TokenFile string `yaml:"tokenFile" format:"file" example:"/etc/deltabridge/audit/tokens"`
	// The maximum size of the audit events that wait in the state directory, because a sink has not delivered them yet.
	// When this size is reached, the bridge refuses further events. API servers try again for about 80 seconds, and
	// then drop them.
	MaxBytes int64 `yaml:"maxBytes" default:"1Gi" min:"16Mi" max:"16Ti" example:"20Gi"`
}

// AuditSinks returns the names of the sinks that are sent audit events.
func (c *Config) AuditSinks() (names []string) {
	for n := range c.Sinks {
		if c.Sinks[n].IsAudit() {
			names = append(names, c.Sinks[n].Name)
		}
	}
	return names
}

// UsesChanges reports whether a sink is sent the changes that `watch` selects.
func (c *Config) UsesChanges() bool {
	return len(c.AuditSinks()) < len(c.Sinks)
}

// IsAudit reports whether the sink is sent audit events, and no changes.
func (s *Sink) IsAudit() bool { return s.Events == EventsAudit }

// validateAudit reports mistakes in audit, and whether it and the sinks belong together.
func (c *Config) validateAudit(at *strictyaml.Section) {
	if c.Audit == nil {
		for i := range c.Sinks {
			if c.Sinks[i].IsAudit() && at.Fine("audit") {
				at.Report(fmt.Sprintf("sinks[%d].events", i),
					"is audit, but the bridge receives no audit events, because there is no key audit",
					"add audit: {certFile: tls.crt, keyFile: tls.key, tokenFile: tokens}")
			}
		}
		return
	}
	if at.Fine("audit") {
		c.Audit.validate(at.At("audit"))
	}
	if at.Fine("sinks") && len(c.AuditSinks()) == 0 {
		at.Report("audit", "has no effect, because no sink is sent audit events; they would fill the disk",
			"add events: audit to a sink, or remove audit")
	}
}

func (a *Audit) validate(at *strictyaml.Section) {
	at.Address("listen", a.Listen, false, "write :8443 or 127.0.0.1:8443")
	at.Together("certFile", "keyFile")
	if host, _, err := net.SplitHostPort(a.Listen); err == nil && a.CertFile == "" {
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			at.Report("listen", strictyaml.Quote(a.Listen)+" is not a loopback address, and audit events would not be encrypted",
				"set certFile and keyFile, or write 127.0.0.1:8443")
		}
	}
	switch {
	case a.ClientCAFile == "" && a.TokenFile == "":
		at.Report("", "does not say how API servers authenticate", "add clientCAFile or tokenFile")
	case a.ClientCAFile != "" && a.CertFile == "":
		at.Report("clientCAFile", "has no effect without certFile", "add certFile and keyFile, or use tokenFile")
	case a.ClientCAFile == "" && at.Has("clientNames"):
		at.Report("clientNames", "has no effect without clientCAFile", "add clientCAFile, or remove it")
	}
}

// validateEvents reports keys that have no meaning for audit events.
func (s *Sink) validateEvents(at *strictyaml.Section) {
	if !s.IsAudit() {
		return
	}
	for _, key := range []string{
		"payload", "resync", "progress", "controlEvents", "enrich", "kafka.tombstones",
		"nats.stream.lastPerSubject", "nats.bucket",
	} {
		if at.Has(key) {
			at.Report(key, "is about changes, and the sink is sent audit events", "remove it, or remove events: audit")
		}
	}
	if at.Has("buffer.overflow") && s.Buffer.Overflow != "block" {
		at.Report(
			"buffer.overflow",
			"has no effect with events: audit, because audit events that a sink cannot deliver wait in "+
				"the audit journal",
			"remove it, and set audit.maxBytes",
		)
	}
	if s.Kafka != nil && !at.Has("kafka.topic") {
		at.Report("kafka", "has no topic; with events: audit, there is no default",
			"add topic: k8s-audit")
	}
	if s.NATS != nil && !at.Has("nats.subject") {
		at.Report("nats", "has no subject; with events: audit, there is no default",
			"add subject: audit.{cluster}.{group}.{resource}.{namespace}.{name}")
	}
	if s.Kafka != nil && at.Has("kafka.topic") {
		for _, name := range []string{"group", "version", "resource", "namespace", "name"} {
			if variable := "{" + name + "}"; strings.Contains(s.Kafka.Topic, variable) {
				at.Warn("kafka.topic", fmt.Sprintf("has %s, which clients of the API server can choose freely: there can be any "+
					"number of topics", variable), "use one topic, and put "+variable+" into the key")
				break
			}
		}
	}
}

// compileFilters returns the mistakes in the filters of a sink.
func (s *Sink) compileFilters() (mistakes []*filter.RuleError) {
	if s.IsAudit() {
		_, mistakes = filter.CompileAudit(s.Filters, filter.Options{})
	} else {
		_, mistakes = filter.Compile(s.Filters, filter.Options{})
	}
	return mistakes
}
