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

// reachTimeout is slightly longer than the timeout of a dial, so the first dial of every address has a result.
const reachTimeout = reach.Timeout + reach.Interval/2

// Reach returns the first of the addresses that accepts a connection. If none does so within about a second, explain is
// called with each address and the error of its net.Dialer or net.Resolver, and Reach returns the errors that explain
// returned.
func Reach(
	ctx context.Context, p *reach.Prober, addrs []string, explain func(addr string, err error) error,
) (string, error) {
	short, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	addr, failures := p.Wait(short, addrs...)
	if addr != "" {
		return addr, nil
	}
	if canceled(ctx) {
		return "", context.Cause(ctx)
	}
	var errs []error
	for _, f := range failures {
		errs = append(errs, explain(f.Address, f.Err))
	}
	if len(errs) == 0 { // the DNS does not answer
		errs = append(errs, explain(strings.Join(addrs, ","), context.Cause(short)))
	}
	return "", Join("", errs)
}

// DialError explains err, which a net.Dialer or a net.Resolver returned for address. key is the configuration key of
// the address. timeout is the time limit that the dial had.
func DialError(ctx context.Context, address, key string, timeout time.Duration, err error) error {
	if canceled(ctx) {
		return context.Cause(ctx)
	}
	e := &sinks.ConnectError{Step: sinks.StepConnect, Address: address, Key: key}
	dns, isDNS := errors.AsType[*net.DNSError](err)
	switch {
	case isDNS && dns.IsNotFound:
		e.Step, e.Err = sinks.StepResolve, Words(err, "there is no host %q", dns.Name)
		e.Remedy = "correct the name in " + key + ", or the DNS record"
	case isDNS:
		e.Step, e.Err = sinks.StepResolve, Words(err, "cannot resolve %q: %s", dns.Name, dns.Err)
		e.Remedy = "check DNS on this machine or pod (including egress to port 53)"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Err = Words(err, "nothing listens there (connection refused)")
		e.Remedy = "start the broker, or correct the port in " + key
	case TimedOut(err):
		e.Err = Words(os.ErrDeadlineExceeded, "no answer within %v", timeout)
		e.Remedy = "check " + key + ", and check that no firewall or NetworkPolicy blocks the connection"
	default:
		e.Err = Plain(err)
	}
	return e
}

// ShareServer reports whether two lists of addresses (host:port) have a server in common. It ignores addresses that are
// not valid, and those with port 0: no other server can have the same address.
func ShareServer(a, b []string) bool {
	return slices.ContainsFunc(a, func(x string) bool {
		host, port, err := net.SplitHostPort(x)
		return err == nil && port != "0" && slices.ContainsFunc(b, func(y string) bool {
			other, otherPort, err := net.SplitHostPort(y)
			return err == nil && port == otherPort && canonicalHost(host) == canonicalHost(other)
		})
	})
}

// canonicalHost returns a canonical spelling of a host, so hosts can be compared.
func canonicalHost(host string) string {
	switch host {
	case "", "0.0.0.0", "::", "::1", "localhost":
		return "127.0.0.1"
	}
	return strings.ToLower(host)
}

func canceled(ctx context.Context) bool {
	return ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled)
}

// TimedOut reports whether err is a timeout.
func TimedOut(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, syscall.ETIMEDOUT)
}

// Closed reports whether err means that the other side closed the connection.
func Closed(err error) bool {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout() && (op.Op == "read" || op.Op == "write")
}

// Plain returns err without the local port, so the text is the same for every attempt.
func Plain(err error) error {
	var op *net.OpError
	if !errors.As(err, &op) || op.Source == nil {
		return err
	}
	return &net.OpError{Op: op.Op, Net: op.Net, Err: op.Err}
}

// Redact replaces the secret in a text from another program.
func Redact(words, secret string) string {
	if secret == "" {
		return words
	}
	return strings.ReplaceAll(words, secret, "***")
}

// Words returns an error with another text. errors.Is and errors.As still find err.
func Words(err error, format string, args ...any) error {
	return &worded{text: fmt.Sprintf(format, args...), err: err}
}

type worded struct {
	text string
	err  error
}

func (w *worded) Error() string { return w.text }
func (w *worded) Unwrap() error { return w.err }

// Join joins errors into one error with a single line. Every distinct text occurs once, with the prefix.
func Join(prefix string, errs []error) error {
	var lines []string
	for _, err := range errs {
		if line := prefix + err.Error(); !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return Words(errors.Join(errs...), "%s", strings.Join(lines, "; "))
}
