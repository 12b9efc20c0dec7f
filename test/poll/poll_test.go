package poll_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/test/poll"
)

func TestUntil(t *testing.T) {
	down := errors.New("down")
	for name, c := range map[string]struct {
		check func(calls int) error
		calls int
		want  []error // the error wraps them; if there are none, there is no error
	}{
		"at once":   {func(int) error { return nil }, 1, nil},
		"later":     {func(calls int) error { return map[bool]error{calls < 3: down}[true] }, 3, nil},
		"never":     {func(int) error { return down }, 11, []error{down, context.DeadlineExceeded}},
		"permanent": {func(int) error { return poll.Permanent(down) }, 1, []error{down}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := poll.Until(t.Context(), time.Second, 10*time.Second+time.Millisecond, func() error {
					calls++
					return c.check(calls)
				})
				if calls != c.calls || (err == nil) != (c.want == nil) {
					t.Errorf("%d calls, %v", calls, err)
				}
				for _, want := range c.want {
					if !errors.Is(err, want) {
						t.Errorf("the error %v is not %v", err, want)
					}
				}
			})
		})
	}
}
