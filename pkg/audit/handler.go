package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

const (
	// maxBody is the maximum size of a body, and of the bodies of all requests at the same time; others get 429. A body
	// whose size is not known counts as maxBody. It is large, because an API server drops the events of a request that is
	// too large: it sends up to 400 events (--audit-webhook-batch-max-size) of any size, unless
	// --audit-webhook-truncate-enabled limits a request to 10 MiB. The intake uses about three times as much memory:
	// bodies, the buffer in which they are read, and what is written to the disk.
	maxBody = 64 << 20
	// maxRequests is the maximum number of requests at once; others get 429.
	maxRequests = 64

	// Seconds until an API server should repeat a request: soon if there were too many requests, and a little later if the
	// disk is full or fails. See the package comment.
	retryBusy, retryDisk = 1, 2
	// allocateBytes is the maximum size of a body that is allocated before it arrives.
	allocateBytes = 1 << 20
	// logInterval is the minimum time between two log messages about the same reason.
	logInterval = time.Minute
)

// Reason says why a request was refused. The values are suitable as labels of a metric.
type Reason string

// The reasons, with their status.
const (
	Unauthenticated Reason = "unauthenticated" // 401: no valid client certificate or token
	Forbidden       Reason = "forbidden"       // 403: the name in the certificate is not one of the configured names
	Invalid         Reason = "invalid"         // 400, 405, 408, 415: not a complete request with an EventList
	TooLarge        Reason = "too-large"       // 413
	Busy            Reason = "busy"            // 429: too many requests at once
	Full            Reason = "full"            // 503: the journal has reached its limit
	Failing         Reason = "failing"         // 503: the journal or the token file cannot be used
	Canceled        Reason = "canceled"        // 503: the client has closed the connection
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{Unauthenticated, Forbidden, Invalid, TooLarge, Busy, Full, Failing, Canceled}
}

// Observer receives what is counted. Its methods are called concurrently. They must not block.
type Observer interface {
	// Received is called for each request whose events are durable.
	Received(events int)
	// Refused is called for each other request.
	Refused(reason Reason)
}

// HandlerOptions are the options of a Handler. Journal, Logger and Observer are required, and at least one of Clients
// and TokenFile.
type HandlerOptions struct {
	Journal *Journal
	// Clients accepts requests with a client certificate. The TLS configuration of the server must verify the certificate.
	Clients bool
	// Names are the common names that client certificates may have. If there are none, every verified certificate is
	// accepted. They are required if the CA issues certificates for others too, as the CA of a cluster does.
	Names []string
	// TokenFile contains the bearer tokens that are accepted, one in each line, so that they can be rotated. It is read
	// for each request.
	TokenFile string
	Logger    *slog.Logger
	Observer  Observer
}

// Handler is the endpoint for audit webhooks. It accepts requests to any path.
type Handler struct {
	opts        HandlerOptions
	maxBody     int64 // maxBody, except in tests
	maxRequests int

	mu       sync.Mutex // guards the following fields
	requests int
	buffered int64 // bytes that requests have reserved
	logged   map[Reason]time.Time
}

// NewHandler returns a Handler. It returns an error if no authentication is configured or the token file cannot be
// used.
func NewHandler(o HandlerOptions) (*Handler, error) {
	if !o.Clients && o.TokenFile == "" {
		return nil, errors.New("audit intake: no authentication is configured; set a client CA or a token file")
	}
	if o.TokenFile != "" {
		if _, err := readTokens(o.TokenFile); err != nil {
			return nil, fmt.Errorf("audit intake: %w", err)
		}
	}
	return &Handler{opts: o, maxBody: maxBody, maxRequests: maxRequests, logged: map[Reason]time.Time{}}, nil
}

// refusal is an error with the response to it.
type refusal struct {
	reason Reason
	status int
	retry  int // seconds; 0 if there is no Retry-After
	err    error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(reason Reason, status int, format string, args ...any) *refusal {
	return &refusal{reason: reason, status: status, err: fmt.Errorf(format, args...)}
}

// ServeHTTP implements http.Handler. It responds with 200 when all events of the request are durable, and otherwise
// with one line that says what is wrong.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refused := h.serve(w, r)
	if refused == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	h.opts.Observer.Refused(refused.reason)
	h.report(r, refused)
	if refused.retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(refused.retry))
	}
	text := refused.Error()
	if refused.status == http.StatusServiceUnavailable {
		text = "the events cannot be stored now, see the log of the bridge" // a client need not know more
	}
	http.Error(w, text, refused.status)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) *refusal {
	if refused := h.authenticate(w, r); refused != nil {
		return refused
	}
	if refused := h.checkHead(w, r); refused != nil {
		return refused
	}
	size := r.ContentLength
	if size < 0 {
		size = h.maxBody
	}
	if !h.enter(size) {
		refused := refuse(Busy, http.StatusTooManyRequests, "too many requests at once, retry later")
		refused.retry = retryBusy
		return refused
	}
	defer h.leave(size)
	body, err := readBody(w, r, size)
	if err != nil {
		return refuseBody(r, err)
	}
	events, err := parseList(body)
	if err != nil {
		return refuse(Invalid, http.StatusBadRequest, "cannot accept the audit events: %w", err)
	}
	if err := h.opts.Journal.Append(r.Context(), events); err != nil {
		return refuseAppend(r.Context(), err)
	}
	h.opts.Observer.Received(len(events))
	return nil
}

// checkHead checks the request without its body.
func (h *Handler) checkHead(w http.ResponseWriter, r *http.Request) *refusal {
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // an invalid one is another one
	switch encoding := r.Header.Get("Content-Encoding"); {
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return refuse(Invalid, http.StatusMethodNotAllowed, "the method is %q; audit webhooks use POST", r.Method)
	case mediaType != "application/json":
		return refuse(Invalid, http.StatusUnsupportedMediaType,
			"the Content-Type is %q; audit events are sent as application/json", r.Header.Get("Content-Type"))
	case encoding != "" && encoding != "identity":
		return refuse(Invalid, http.StatusUnsupportedMediaType,
			"the Content-Encoding is %q; send the body without encoding", encoding)
	case r.ContentLength > h.maxBody:
		return refuseSize(h.maxBody)
	}
	return nil
}

func refuseSize(limit int64) *refusal {
	return refuse(TooLarge, http.StatusRequestEntityTooLarge, "the body has more than %d bytes; "+
		"set --audit-webhook-truncate-enabled, lower --audit-webhook-batch-max-size, or raise the limit of the intake", limit)
}

// enter admits a request with a body of this size, if there are not too many others.
func (h *Handler) enter(size int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests >= h.maxRequests || h.buffered+size > h.maxBody {
		return false
	}
	h.requests++
	h.buffered += size
	return true
}

func (h *Handler) leave(size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests--
	h.buffered -= size
}

// readBody reads a body of up to limit bytes. It allocates a large body as it arrives.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(int(min(limit, allocateBytes)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return body.Bytes(), err
}

// refuseBody returns the response to a body that cannot be read.
func refuseBody(r *http.Request, err error) *refusal {
	tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err)
	switch {
	case isTooLarge:
		return refuseSize(tooLarge.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refuse(Invalid, http.StatusRequestTimeout, "the body did not arrive in time")
	case r.Context().Err() != nil:
		return refuse(Canceled, http.StatusServiceUnavailable, "the connection was closed: %w", err)
	}
	return refuse(Invalid, http.StatusBadRequest, "the body is not complete: %w", err)
}

// refuseAppend returns the response to a failed Append.
func refuseAppend(ctx context.Context, err error) *refusal {
	refused := &refusal{reason: Failing, status: http.StatusServiceUnavailable, retry: retryDisk, err: err}
	switch {
	case errors.Is(err, ErrFull):
		refused.reason = Full
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		refused.reason = Canceled
	}
	return refused
}

// report logs a refused request, unless another one was refused for the same reason a short time before.
func (h *Handler) report(r *http.Request, refused *refusal) {
	h.mu.Lock()
	isNews := time.Since(h.logged[refused.reason]) >= logInterval
	if isNews {
		h.logged[refused.reason] = time.Now()
	}
	h.mu.Unlock()
	if isNews {
		h.opts.Logger.Warn("request with audit events refused", "reason", refused.reason, "status", refused.status,
			"remote", r.RemoteAddr, "err", refused.err)
	}
}
