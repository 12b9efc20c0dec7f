package natscheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// Check checks the files, every server, the permissions and the stream. destination is the identity of the stream;
// empty if it is not known.
func (s *Stream) Check(ctx context.Context) (findings []diagnose.Finding, destination string) {
	t, may, findings := s.CheckAccess(ctx)
	if t == nil {
		return findings, ""
	}
	defer t.Conn.Close()
	found, destination := s.checkStream(ctx, t, may)
	return append(findings, found...), destination
}

// CheckAccess checks the files, every server and the permissions. t is a connection to the first server that can be
// used, which the caller must close. It is nil if the stream cannot be checked. may contains the user's permissions; it
// is nil if they are not known.
func (s *Stream) CheckAccess(
	ctx context.Context,
) (t *natsconn.Attempt, may *server.Permissions, findings []diagnose.Finding) {
	files, err := s.Access.CheckFiles()
	if err != nil {
		return nil, nil, []diagnose.Finding{diagnose.Failed(sinks.StepFiles, "nats", err)}
	}
	if len(files) > 0 {
		detail := strings.Join(files, ", ")
		findings = append(findings, diagnose.Finding{Step: sinks.StepFiles, Target: "nats", Detail: detail})
	}
	t, found, _ := s.Access.First(ctx)
	findings = append(findings, found...)
	if t == nil {
		return nil, nil, findings
	}
	found, may, answered := s.checkPermissions(ctx, t)
	findings = append(findings, found...)
	if !answered {
		t.Conn.Close()
		return nil, nil, findings
	}
	return t, may, findings
}

// Find returns the stream info. It does not create the stream.
func (s *Stream) Find(ctx context.Context, t *natsconn.Attempt) (info *jetstream.StreamInfo, err error) {
	err = t.Ask(ctx, func(ctx context.Context) error {
		stream, err := t.JetStream.Stream(ctx, s.Config.Name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	return info, err
}

// checkStream checks whether the stream meets the requirements. If the stream does not exist, it checks the stream that
// would be created. may contains the user's permissions; it is nil if they are not known.
func (s *Stream) checkStream(
	ctx context.Context, t *natsconn.Attempt, may *server.Permissions,
) ([]diagnose.Finding, string) {
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	info, err := s.Find(ctx, t)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.Create:
		return s.checkCreation(ctx, t, may), s.Destination(nil)
	case err != nil:
		return []diagnose.Finding{s.failed(s.Error(err))}, ""
	}
	destination := s.Destination(info)
	if err := s.Unfit(&info.Config); err != nil {
		return []diagnose.Finding{s.failed(err)}, destination
	}
	ok := s.Describe(info)
	return slices.Concat([]diagnose.Finding{ok}, s.doctorWarnings(&info.Config, t.Conn.MaxPayload()),
		s.readBackWarnings(&info.Config, info.State.Consumers, may)), destination
}

// Describe returns a finding that describes an existing stream.
func (s *Stream) Describe(info *jetstream.StreamInfo) diagnose.Finding {
	return s.finding(fmt.Sprintf("%s; %d messages", describe(&info.Config), info.State.Msgs))
}

func (s *Stream) finding(detail string) diagnose.Finding {
	return diagnose.Finding{Step: sinks.StepStream, Target: "stream " + s.Config.Name, Detail: detail}
}

func (s *Stream) failed(err error) diagnose.Finding {
	return diagnose.Failed(sinks.StepStream, "stream "+s.Config.Name, err)
}

// MaxMessage returns the size in bytes of the largest message that the server and the stream accept.
func (s *Stream) MaxMessage(ctx context.Context) (int64, error) {
	t, _, err := s.Access.First(ctx)
	if err != nil {
		return 0, err
	}
	defer t.Conn.Close()
	limit := t.Conn.MaxPayload()
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	info, err := s.Find(ctx, t)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && s.Create:
		return limit, nil // the stream would be created without a message size limit
	case err != nil:
		return limit, s.Error(err)
	}
	return maxMessage(&info.Config, limit), s.Unfit(&info.Config)
}

// allows reports whether a rule allows all subjects that match pattern, and whether it allows at least one. An empty
// list allows all subjects.
func allows(rule *server.SubjectPermission, pattern string) (all, some bool) {
	if rule == nil {
		return true, true
	}
	all, some = len(rule.Allow) == 0, len(rule.Allow) == 0
	for _, filter := range rule.Allow {
		all, some = all || server.SubjectMatchesFilter(pattern, filter), some || server.SubjectsCollide(filter, pattern)
	}
	for _, filter := range rule.Deny {
		all, some = all && !server.SubjectsCollide(filter, pattern), some && !server.SubjectMatchesFilter(pattern, filter)
	}
	return all, some
}

// expiresSoon is how long before credentials expire a warning is reported.
const expiresSoon = 7 * 24 * time.Hour

// checkPermissions requests the user's permissions from the server. If the server does not answer, may is nil, and a
// missing permission is detected only when the stream is checked or when the first event is sent. answered is false if
// the user may not subscribe to answers, without which nothing else can be checked.
func (s *Stream) checkPermissions(
	ctx context.Context, t *natsconn.Attempt,
) (findings []diagnose.Finding, may *server.Permissions, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, s.Access.Timeout)
	defer cancel()
	var user *server.UserInfo
	err := t.AskOptional(ctx, func(ctx context.Context) (err error) {
		user, err = userInfo(ctx, t.Conn)
		return err
	})
	f := diagnose.Finding{Step: sinks.StepAuthorize, Target: "subject " + s.Wildcard}
	if err != nil && strings.Contains(err.Error(), "Permissions Violation for Subscription") {
		err = s.Access.Denied("the user lacks a permission", err, s.Wildcard)
		return []diagnose.Finding{diagnose.Failed(f.Step, f.Target, err)}, nil, false
	}
	if err != nil {
		f.Detail = "the server does not report the user's permissions"
		return []diagnose.Finding{f}, nil, true
	}
	f.Detail = fmt.Sprintf("account %s, user %s", user.Account, user.UserID)
	if left := user.Expires; left > 0 {
		f.Detail += fmt.Sprintf(", credentials expire in %v", left.Round(time.Second))
		if left < expiresSoon {
			f.Warn, f.Remedy = true, "renew the credentials"
		}
	}
	may = user.Permissions
	denied := s.deniedOf(may, f.Target)
	if len(denied) > 0 && denied[0].Err != nil && !f.Warn {
		return denied, may, true // an "ok" before a failure of the same step would be misleading
	}
	return append([]diagnose.Finding{f}, denied...), may, true
}

// userInfo asks the server that conn is connected to about its user. If this server is a leaf node, the hub answers
// too: about the user as which the leaf node is connected to it.
func userInfo(ctx context.Context, conn *natsgo.Conn) (*server.UserInfo, error) {
	sub, err := conn.SubscribeSync(conn.NewInbox() + ".user")
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := conn.PublishRequest("$SYS.REQ.USER.INFO", sub.Subject, nil); err != nil {
		return nil, err
	}
	for {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Server server.ServerInfo `json:"server"`
			Data   server.UserInfo   `json:"data"`
		}
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return nil, err
		}
		if answer.Server.ID == conn.ConnectedServerId() {
			return &answer.Data, nil
		}
	}
}

// deniedOf returns a failure for every permission that is required and the user does not have, except those to
// read the stream back.
func (s *Stream) deniedOf(may *server.Permissions, target string) (findings []diagnose.Finding) {
	if may == nil {
		return nil
	}
	denied := func(op, subject string) {
		err := fmt.Errorf("%w: Permissions Violation for %s to %q", natsgo.ErrPermissionViolation, op, subject)
		err = s.Access.Denied("the user lacks a permission", err, s.Wildcard)
		findings = append(findings, diagnose.Failed(sinks.StepAuthorize, target, err))
	}
	inbox := s.Access.Inbox()
	if all, _ := allows(may.Subscribe, inbox+".*.*"); !all {
		denied("Subscription", inbox+".>")
	}
	// The permission for INFO is not tested here, because checkStream sends that request.
	create := s.Access.API() + ".STREAM.CREATE." + s.Config.Name
	if all, _ := allows(may.Publish, create); s.Create && !all {
		denied("Publish", create)
	}
	for _, subject := range s.Requests {
		if all, _ := allows(may.Publish, subject); !all {
			denied("Publish", subject)
		}
	}
	wildcard := s.Access.Route(s.Wildcard) + s.Wildcard
	switch all, some := allows(may.Publish, wildcard); {
	case !some:
		denied("Publish", wildcard)
	case !all:
		findings = append(findings, diagnose.Finding{
			Step: sinks.StepAuthorize, Target: target, Warn: true,
			Detail: fmt.Sprintf("the user may publish only to part of %q: other events are not delivered", s.Wildcard),
			Remedy: s.Access.Denied("", errors.New(""), s.Wildcard).Remedy,
		})
	}
	return findings
}
