package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// reachPatience is a little more than a dial takes, so that each of the first ones has a result.
const reachPatience = reach.Timeout + reach.Interval/2

// Reach returns the first of the addresses that accepts a connection. If none does for a second, the error has what explain
// makes of each address's failure, which is a net.Dialer's or a net.Resolver's.
func Reach(ctx context.Context, p *reach.Prober, addrs []string, explain func(addr string, err error) error) (string, error) {
	short, cancel := context.WithTimeout(ctx, reachPatience)
	defer cancel()
	addr, err := p.Wait(short, addrs...)
	if err == nil || canceled(ctx) {
		return addr, err
	}
	var errs []error
	if unreachable, ok := errors.AsType[*reach.UnreachableError](err); ok {
		for _, f := range unreachable.Failures {
			errs = append(errs, explain(f.Address, f.Err))
		}
	}
	if len(errs) == 0 { // the DNS gives no answer, or there is no address
		errs = append(errs, explain(strings.Join(addrs, ","), err))
	}
	return "", Join("", errs)
}

// DialError is why no TCP connection to address came about: err is a net.Dialer's or a net.Resolver's. key is where
// the configuration has the address, timeout how long was waited.
func DialError(ctx context.Context, address, key string, timeout time.Duration, err error) error {
	e := &sinks.ConnectError{Step: sinks.StepConnect, Address: address, Key: key}
	var dns *net.DNSError
	switch {
	case canceled(ctx):
		return context.Cause(ctx)
	case errors.As(err, &dns):
		e.Step = sinks.StepResolve
		host, _, _ := net.SplitHostPort(address)
		if host == "" {
			host = address
		}
		switch {
		case dns.IsNotFound:
			e.Err = Words(err, "there is no host %q", host)
			e.Remedy = "correct the name in " + key + ", or the DNS"
		default:
			e.Err = Words(err, "the DNS does not say where %q is: %s", host, dns.Err)
			e.Remedy = "look at the DNS of this machine or pod (egress to port 53)"
		}
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Err = Words(err, "nothing listens there (connection refused)")
		e.Remedy = "start the broker, or correct the port in " + key
	case TimedOut(err):
		e.Err = Words(os.ErrDeadlineExceeded, "no answer within %v", timeout)
		e.Remedy = "look at firewalls and NetworkPolicies on the way, and at " + key
	default:
		e.Err = Plain(err)
	}
	return e
}

func canceled(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}

// TimedOut reports whether err says that time ran out.
func TimedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT)
}

// Closed reports whether err says that the other side closed the connection.
func Closed(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write")
}

// Plain is err in words that stay the same from one attempt to the next: without the ports of this side.
func Plain(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err
	}
	return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
}

// Redact takes secret out of words that came from elsewhere.
func Redact(words, secret string) string {
	if secret == "" {
		return words
	}
	return strings.ReplaceAll(words, secret, "***")
}

// Words is err for people: it reads as text alone, and errors.Is and errors.As still find err.
func Words(err error, format string, args ...any) error {
	return &worded{text: fmt.Sprintf(format, args...), err: err}
}

type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

// Join is several errors, one of each server, on one line; each distinct one once, behind prefix. errs is not empty.
func Join(prefix string, errs []error) error {
	j := &joined{}
	var lines []string
	for _, err := range errs {
		if line := prefix + err.Error(); !slices.Contains(lines, line) {
			lines, j.errs = append(lines, line), append(j.errs, err)
		}
	}
	j.text = strings.Join(lines, "; ")
	return j
}

type joined struct {
	text string
	errs []error
}

func (j *joined) Error() string   { return j.text }
func (j *joined) Unwrap() []error { return j.errs }
