package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if !pause.For(t.Context(), time.Minute) || time.Since(start) != time.Minute {
			t.Errorf("it returns after %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if pause.For(ctx, time.Hour) || time.Since(start) != time.Minute+time.Second {
			t.Errorf("it returns after %v", time.Since(start))
		}
	})
}
