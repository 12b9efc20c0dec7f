package natsconn

import (
	"context"
	"errors"
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

	mu     sync.Mutex
	last   error
	cancel context.CancelFunc
}

// note records an error from the connection's ErrorHandler if the error is a permission violation.
func (d *Denials) note(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `Permissions Violation for Publish to "`)
	if subject, _, ok := strings.Cut(rest, `"`); ok {
		offer(d.Forbidden, subject)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if d.cancel != nil {
		d.cancel()
	}
}

// Forget removes all recorded denials.
func (d *Denials) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
}

// Ask calls do, which sends a request. The context of do ends when the server denies a request. If do fails and a
// denial is recorded, Ask returns the denial.
func (d *Denials) Ask(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.mu.Lock()
	d.cancel = cancel
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
