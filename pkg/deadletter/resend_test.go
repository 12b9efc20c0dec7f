package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// scripted is a sink whose results a test chooses.
type scripted struct {
	sinks.Sink

	connect error
	results map[string]error // by event id
	failing int              // attempts that fail before connect and results count
}

func (s *scripted) attempt(result error) error {
	if s.failing--; s.failing >= 0 {
		return errors.New("unavailable")
	}
	return result
}

func (s *scripted) Connect(context.Context) error { return s.attempt(s.connect) }

func (s *scripted) Send(ctx context.Context, batch []*event.Message, results []error) {
	results[0] = s.attempt(s.results[batch[0].ID])
	if !batch[0].Resent {
		results[0] = errors.New("not marked as re-sent")
	}
	if ctx.Err() != nil {
		results[0] = ctx.Err()
	}
}

// What is acknowledged is removed, and everything else is kept. A destination that does not answer ends the command.
func TestResend(t *testing.T) {
	for name, c := range map[string]struct {
		sink              scripted
		want, left, fails string
	}{
		"all":              {scripted{}, "uid.1 ok, uid.3 ok", "", ""},
		"after some time":  {scripted{failing: 5}, "uid.1 ok, uid.3 ok", "", ""},
		"one rejected":     {scripted{results: map[string]error{"uid.1": errLarge}}, "uid.1 rejected, uid.3 ok", "uid.1", ""},
		"no connection":    {scripted{connect: errors.New("refused")}, "", "uid.1 uid.3", "refused"},
		"not in time":      {scripted{failing: 1000}, "", "uid.1 uid.3", "unavailable"},
		"no further":       {scripted{results: map[string]error{"uid.3": errors.New("lost")}}, "uid.1 ok", "uid.3", "lost"},
		"rejects the user": {scripted{connect: errLarge}, "", "uid.1 uid.3", "9 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newStore(t, 0)
				keep(t, f, message(1, 10))
				keep(t, f, message(3, 10))
				var results []string
				began := time.Now()
				err := f.Resend(t.Context(), &c.sink, []string{"uid.1", "uid.2", "uid.3"}, 10*time.Second,
					func(id string, rejection error) error {
						text := " ok"
						if rejection != nil {
							text = " rejected"
						}
						results = append(results, id+text)
						return nil
					})
				if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %s", err, c.fails)
				}
				left := ids(t, f)
				slices.Sort(left)
				if got := strings.Join(results, ", "); got != c.want || strings.Join(left, " ") != c.left {
					t.Errorf("%s; left %s", got, left)
				}
				if took := time.Since(began); took > 11*time.Second {
					t.Errorf("took %s", took)
				}
			})
		})
	}
}

// A result that cannot be reported ends the command.
func TestResendIsNotReported(t *testing.T) {
	f := newStore(t, 0)
	keep(t, f, message(1, 10))
	keep(t, f, message(2, 10))
	closed := errors.New("closed pipe")
	err := f.Resend(t.Context(), &scripted{}, ids(t, f), time.Second, func(string, error) error { return closed })
	if left := ids(t, f); !errors.Is(err, closed) || fmt.Sprint(left) != "[uid.2]" {
		t.Errorf("%v, left %v", err, left)
	}
}
