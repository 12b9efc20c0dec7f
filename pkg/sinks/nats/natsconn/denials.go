package natsconn

import (
	"context"
	"errors"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// Denials are the permission violations of a connection. The server reports them apart from what was asked, and a
// request that is denied gets no answer.
type Denials struct {
	mu     sync.Mutex
	last   error
	cancel context.CancelFunc
}

// note takes the errors of a connection's ErrorHandler.
func (d *Denials) note(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = err
	if d.cancel != nil {
		d.cancel()
	}
}

// Forget forgets the denials so far.
func (d *Denials) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.last = nil
}

// Ask calls do, which asks the server for something, with a context that ends when the server denies something. If do
// fails and there is a denial, that is the error.
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

// ForbiddenSubject returns the subject to which the server did not let publish; empty if err is another error.
func ForbiddenSubject(err error) string {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return ""
	}
	_, rest, _ := strings.Cut(err.Error(), `Permissions Violation for Publish to "`)
	subject, _, _ := strings.Cut(rest, `"`)
	return subject
}
