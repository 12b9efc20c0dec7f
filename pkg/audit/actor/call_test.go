package actor

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// at returns a time, in milliseconds after an arbitrary one.
func at(ms int) time.Time {
	return time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC).Add(time.Duration(ms) * time.Millisecond)
}

// call is a request to an API server. Zero fields have usual values.
type call struct {
	user, verb, resource, sub string
	name, refUID              string // x; of objectRef
	id                        string // auditID
	from, to                  int    // milliseconds
	code                      int    // 201 for create, otherwise 200
	stage, level              string // ResponseComplete, RequestResponse
	query                     string
	request, response         string
	deleted                   string // responseStatus.details.uid
	annotations               string // JSON
}

// event returns the audit event of the call.
func (c call) event(t testing.TB) *audit.Event {
	t.Helper()
	or := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	or(&c.user, "alice")
	or(&c.resource, "configmaps")
	or(&c.name, "x")
	or(&c.stage, stageComplete)
	or(&c.level, "RequestResponse")
	or(&c.annotations, "{}")
	or(&c.id, c.user+c.verb)
	if c.code == 0 {
		if c.code = 200; c.verb == "create" {
			c.code = 201
		}
	}
	var b strings.Builder
	text := func(s string) string {
		j, _ := json.Marshal(s)
		return string(j)
	}
	_, _ = fmt.Fprintf(&b, `{"level":%q,"auditID":%q,"stage":%q,"requestURI":%s,"verb":%q,`, c.level, c.id, c.stage,
		text("/api/v1/namespaces/n/"+c.resource+"/x?"+c.query), c.verb)
	_, _ = fmt.Fprintf(&b, `"user":{"username":%s,"groups":["g-%s","all"]},"sourceIPs":["6.6.6.6","10.0.0.1"],`+
		`"userAgent":"agent-%s","objectRef":{"resource":%q,"namespace":"n","name":%q,"uid":%q,"subresource":%q},`,
		text(c.user), c.user, c.user, c.resource, c.name, c.refUID, c.sub)
	_, _ = fmt.Fprintf(&b, `"responseStatus":{"metadata":{},"details":{"uid":%q},"code":%d},`, c.deleted, c.code)
	if c.request != "" {
		b.WriteString(`"requestObject":` + c.request + `,`)
	}
	if c.response != "" {
		b.WriteString(`"responseObject":` + c.response + `,`)
	}
	const form = "2006-01-02T15:04:05.000000Z07:00"
	_, _ = fmt.Fprintf(&b, `"requestReceivedTimestamp":%q,"stageTimestamp":%q,"annotations":%s}`,
		at(c.from).Format(form), at(c.to).Format(form), c.annotations)
	return parse(t, b.String())
}

// parse returns the audit event with this JSON.
func parse(t testing.TB, raw string) *audit.Event {
	t.Helper()
	var in struct {
		AuditID, Stage, Verb                     string
		User                                     struct{ Username string }
		RequestReceivedTimestamp, StageTimestamp time.Time
		ObjectRef                                audit.ObjectReference
	}
	if err := json.Unmarshal([]byte(raw), &in); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	return &audit.Event{
		AuditID: in.AuditID, Stage: in.Stage, Verb: in.Verb, User: in.User.Username, Object: in.ObjectRef,
		Received: in.RequestReceivedTimestamp, StageTime: in.StageTimestamp, Raw: []byte(raw),
	}
}

// object returns the JSON of an object, with more members of its metadata.
func object(uid string, version int, more ...string) string {
	return fmt.Sprintf(
		`{"kind":"K","metadata":{"name":"x","uid":%q,"resourceVersion":"%d"%s}}`,
		uid,
		version,
		strings.Join(more, ""),
	)
}

// naming returns the JSON of a request object that names a resourceVersion.
func naming(version string) string {
	return fmt.Sprintf(`{"metadata":{"resourceVersion":%q}}`, version)
}

// Members of metadata.
const (
	terminating = `,"deletionTimestamp":"2026-11-27T01:00:00Z"`
	noGrace     = `,"deletionGracePeriodSeconds":0`
	finalizer   = `,"finalizers":["f"]`
)

func (a *Actor) String() string {
	if a == nil {
		return "-"
	}
	if a.Impersonated != "" {
		return a.Impersonated + " " + a.Grade.String()
	}
	return a.User + " " + a.Grade.String()
}
