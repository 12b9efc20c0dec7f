package natsconn

import (
	"context"
	"errors"
	"strings"
	"sync"

	natsgo "github.com/nats-io/nats.go"
)

// Denials are the permission violations of a connection. The server reports them separately: a request that is denied
// gets no answer.
type Denials struct {
	// Forbidden receives the subjects to which the server did not let publish; it may lose some. Nil is allowed.
	Forbidden chan string

	mu     sync.Mutex
	last   error
	cancel context.CancelFunc
}

// note takes the errors of a connection's ErrorHandler.
func (d *Denials) note(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return
	}
	_, rest, _ := strings.Cut(err.Error(), `Permissions Violation for Publish to "`)
	if subject, _, ok := strings.Cut(rest, `"`); ok {
		Offer(d.Forbidden, subject)
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

// Ask calls do, which sends a request, with a context that ends when the server denies something. If do fails and there
// is a denial, Ask returns the denial.
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
