package natsconn

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// Denials records the permission violations of a connection. The server reports a violation separately from the
// request, and the denied request gets no answer.
type Denials struct {
	// Forbidden receives the subjects that the client has no permission to publish to. Subjects are lost while the channel
	// is full. It may be nil.
	Forbidden chan string

	mu       sync.Mutex
	prefixes []string // of the last call of Ask
	last     error
	cancel   context.CancelFunc
}

// note records an error from the connection's ErrorHandler if the error is a permission violation.
func (d *Denials) note(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `Permissions Violation for Publish to "`)
	subject, _, publish := strings.Cut(rest, `"`)
	if publish {
		offer(d.Forbidden, subject)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	begins := func(prefix string) bool { return strings.HasPrefix(subject, prefix) }
	if publish && len(d.prefixes) > 0 && !slices.ContainsFunc(d.prefixes, begins) {
		return
	}
	d.last = err
	if d.cancel != nil {
		d.cancel()
	}
}

// forget removes all recorded denials.
func (d *Denials) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
}

// Ask calls do, which sends requests. The context of do ends when the server denies one. If do fails and a denial is
// recorded, Ask returns the denial. If there are prefixes, the subjects of all requests of do begin with one of them.
// Denials of other subjects, to which the client publishes without Ask, then do not count.
func (d *Denials) Ask(ctx context.Context, do func(context.Context) error, prefixes ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.cancel, d.prefixes = cancel, prefixes
	d.mu.Unlock()
	err := do(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cancel = nil
	if err != nil && d.last != nil {
		return d.last
	}
	return err
}

// AskOptional is like Ask, for requests that may be denied: their denials are not the cause if another request fails.
func (d *Denials) AskOptional(ctx context.Context, do func(context.Context) error, prefixes ...string) error {
	d.forget()
	defer d.forget()
	return d.Ask(ctx, do, prefixes...)
}
