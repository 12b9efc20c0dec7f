package work

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestLockExcludes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock := func(ctx context.Context) (func(), error) { return Lock(ctx, path, func() {}) }
	unlock, err := lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the second lock: %v, want it to wait until the context ends", err)
	}
	unlock()
	unlock, err = lock(ctx)
	if err != nil {
		t.Fatalf("the lock after the first was given back: %v", err)
	}
	unlock()
}
