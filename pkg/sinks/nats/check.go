package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker]: the files, each server, what the user may do, and the stream. An embedded server is
// not started: whether it could be is all that is told.
func (s *Sink) Check(ctx context.Context) []sinks.Finding {
	if s.cfg.Embedded != nil && s.server == nil {
		return append(checkEmbedded(s.cfg.Embedded), s.checkConfigured(embeddedMaxPayload)...)
	}
	var findings []sinks.Finding
	if files := s.files(); len(files) > 0 {
		_, err := s.cfg.TLS.NewSession(tlsSection)
		if err == nil {
			err = s.cfg.Auth.check()
		}
		if err != nil {
			return []sinks.Finding{sinks.Failed(sinks.StepFiles, "nats", err)}
		}
		findings = append(findings, sinks.Finding{Step: sinks.StepFiles, Target: "nats", Detail: strings.Join(files, ", ")})
	}
	found, conn, t := s.checkServers(ctx)
	findings = append(findings, found...)
	if conn == nil {
		return findings
	}
	defer conn.Close()
	findings = append(findings, s.checkPermissions(ctx, conn, t.denials)...)
	return append(findings, s.checkJetStream(ctx, conn, t)...)
}

func (s *Sink) files() []string {
	_, secret := s.cfg.Auth.file()
	return slices.DeleteFunc(append(s.cfg.TLS.Files(), secret), func(file string) bool { return file == "" })
}

// checkServers tries all servers at once, and leaves the connection to the first that will do.
func (s *Sink) checkServers(ctx context.Context) (all []sinks.Finding, conn *natsgo.Conn, with *trial) {
	urls := strings.Split(s.urls(), ",")
	found, conns, trials := make([][]sinks.Finding, len(urls)), make([]*natsgo.Conn, len(urls)), make([]*trial, len(urls))
	var wg sync.WaitGroup
	for i, raw := range urls {
		wg.Go(func() { found[i], conns[i], trials[i] = s.checkServer(ctx, strings.TrimSpace(raw)) })
	}
	wg.Wait()
	for i, c := range conns {
		all = append(all, found[i]...)
		switch {
		case c != nil && conn == nil:
			conn, with = c, trials[i]
		case c != nil:
			c.Close()
		}
	}
	return all, conn, with
}

func (s *Sink) checkServer(ctx context.Context, raw string) (findings []sinks.Finding, _ *natsgo.Conn, _ *trial) {
	t, err := s.newTrial(raw)
	if err != nil {
		return []sinks.Finding{sinks.Failed(sinks.StepResolve, redacted(raw), err)}, nil, nil
	}
	t.passed = func(step, detail string, warn bool) {
		f := sinks.Finding{Step: step, Target: t.addr, Detail: detail, Warn: warn}
		switch {
		case warn && step == sinks.StepAuthenticate:
			f.Remedy = "enable TLS on the server, or use an nkey or credentials, which are never sent"
		case warn:
			f.Remedy = "renew the certificate"
		}
		findings = append(findings, f)
	}
	conn, err := t.run(ctx)
	if err != nil {
		return append(findings, sinks.Failed(sinks.StepConnect, t.addr, err)), nil, nil
	}
	return findings, conn, t
}

// userInfo is what a server tells of the user of a connection ($SYS.REQ.USER.INFO).
type userInfo struct {
	Data struct {
		User        string        `json:"user"`
		Account     string        `json:"account"`
		Expires     time.Duration `json:"expires"`
		Permissions *struct {
			Publish   *subjectRule `json:"publish"`
			Subscribe *subjectRule `json:"subscribe"`
		} `json:"permissions"`
	} `json:"data"`
}

// subjectRule is a list of subjects that are allowed (none: all) less those that are denied.
type subjectRule struct {
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
}

// allows reports whether every subject of the pattern is allowed, and whether some are.
func (r *subjectRule) allows(pattern string) (all, some bool) {
	if r == nil {
		return true, true
	}
	all, some = len(r.Allow) == 0, len(r.Allow) == 0
	for _, filter := range r.Allow {
		all, some = all || covers(filter, pattern), some || overlap(filter, pattern)
	}
	for _, filter := range r.Deny {
		all, some = all && !overlap(filter, pattern), some && !covers(filter, pattern)
	}
	return all, some
}

// expiresSoon is how long before the end of credentials to warn.
const expiresSoon = 7 * 24 * time.Hour

// checkPermissions asks the server what the user may do. A server that does not tell is none the worse: what is not
// allowed then shows at the stream, or with the first event.
func (s *Sink) checkPermissions(ctx context.Context, conn *natsgo.Conn, d *denials) []sinks.Finding {
	ctx, cancel := context.WithTimeout(ctx, min(connectTimeout, s.cfg.AckTimeout))
	defer cancel()
	watched, end := d.during(ctx)
	msg, err := conn.RequestWithContext(watched, "$SYS.REQ.USER.INFO", nil)
	_ = end() // a denial of the question itself
	d.forget()
	var info userInfo
	if err == nil {
		err = json.Unmarshal(msg.Data, &info)
	}
	target := "subject " + s.subject.Wildcard()
	if err != nil {
		return []sinks.Finding{{Step: sinks.StepAuthorize, Target: target, Detail: "the server does not tell what the user may do"}}
	}
	f := sinks.Finding{Step: sinks.StepAuthorize, Target: target, Detail: fmt.Sprintf("account %s, user %s", info.Data.Account, info.Data.User)}
	if left := info.Data.Expires; left > 0 {
		f.Detail += fmt.Sprintf(", for another %v", left.Round(time.Second))
		if left < expiresSoon {
			f.Warn, f.Remedy = true, "issue new credentials in time"
		}
	}
	may := info.Data.Permissions
	if may == nil {
		return []sinks.Finding{f}
	}
	findings := []sinks.Finding{f}
	denied := func(op, subject string) {
		err := fmt.Errorf("%w: Permissions Violation for %s to %q", natsgo.ErrPermissionViolation, op, subject)
		findings = append(findings, sinks.Failed(sinks.StepAuthorize, target, s.denied("the user may not do what is needed", err)))
	}
	if all, _ := may.Subscribe.allows("_INBOX.*.*"); !all {
		denied("Subscription", "_INBOX.>")
	}
	api := []string{"$JS.API.STREAM.INFO." + s.cfg.Stream.Name}
	if s.cfg.Stream.Create {
		api = append(api, "$JS.API.STREAM.CREATE."+s.cfg.Stream.Name)
	}
	for _, subject := range api {
		if all, _ := may.Publish.allows(subject); !all {
			denied("Publish", subject)
		}
	}
	switch all, some := may.Publish.allows(s.subject.Wildcard()); {
	case !some:
		denied("Publish", s.subject.Wildcard())
	case !all:
		findings = append(findings, sinks.Finding{
			Step: sinks.StepAuthorize, Target: target, Warn: true,
			Detail: fmt.Sprintf("the user may publish to a part of %q only: events outside are not delivered", s.subject.Wildcard()),
			Remedy: s.denied("", errors.New("")).Remedy,
		})
	}
	if len(findings) > 1 && findings[1].Err != nil && !f.Warn {
		findings = findings[1:] // "ok" above a failure of the same step would mislead
	}
	return findings
}

// checkJetStream looks for the stream, and at it, or at what would be created.
func (s *Sink) checkJetStream(ctx context.Context, conn *natsgo.Conn, t *trial) []sinks.Finding {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	target := "stream " + s.cfg.Stream.Name
	js, err := jetstream.New(conn)
	if err != nil {
		return []sinks.Finding{sinks.Failed(sinks.StepStream, target, err)}
	}
	watched, end := t.denials.during(ctx)
	stream, err := js.Stream(watched, s.cfg.Stream.Name)
	denial := end()
	switch {
	case err == nil:
		s.destination = destinationOf(s.cfg.Stream.Name, stream.CachedInfo())
		return s.judgeStream(stream.CachedInfo(), conn.MaxPayload())
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.cfg.Stream.Create:
		s.destination = destinationOf(s.cfg.Stream.Name, nil)
		return s.checkCreation(ctx, js, t, conn.MaxPayload())
	}
	return []sinks.Finding{sinks.Failed(sinks.StepStream, target, s.streamError(err, denial))}
}
