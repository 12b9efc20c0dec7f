package fifo_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// A consumer takes a batch, delivers it and acknowledges it. Here the queue is full at the third push.
func ExampleNewRing() {
	ctx := context.Background()
	q := fifo.NewRing(fifo.RingOptions[string]{
		MaxItems: 2,
		Overflow: fifo.DropOldest,
		Gap: func(gaps []string, dropped string) []string {
			return append(gaps, "missing: "+dropped)
		},
	})
	for _, v := range []string{"a", "b", "c"} {
		if err := q.Push(ctx, v); err != nil {
			fmt.Println(err)
		}
	}
	q.Close()

	var batch []string
	for {
		var err error
		batch, err = q.Take(ctx, batch, 100, 1<<20)
		if errors.Is(err, fifo.ErrClosed) {
			break
		}
		fmt.Println(batch)
		q.Ack(len(batch))
	}
	// Output: [missing: a b c]
}
