// Package poll waits for conditions that nothing announces.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// permanent is an error at which Until stops.
type permanent struct{ error }

// Permanent returns an error of a check at which [Until] returns err immediately.
func Permanent(err error) error { return permanent{err} }

// Until calls check, immediately and then after each interval, until check returns nil, ctx ends or limit has passed.
// Its error contains the last one of check.
func Until(ctx context.Context, interval, limit time.Duration, check func() error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, interval, limit, true, func(context.Context) (bool, error) {
		last = check()
		if p, ok := errors.AsType[permanent](last); ok {
			return false, p.error
		}
		return last == nil, nil
	})
	if wait.Interrupted(err) && last != nil {
		err = fmt.Errorf("%w after at most %s: %w", err, limit, last)
	}
	return err
}
