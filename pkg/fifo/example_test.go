package fifo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// A consumer takes a batch, delivers it and acknowledges it. Here memory is full at the third push, so the queue writes
// its items to disk.
func ExampleNew() {
	dir, err := os.MkdirTemp("", "fifo")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	q, err := fifo.New(fifo.Options[string]{
		Path:      filepath.Join(dir, "queue"),
		MaxItems:  2,
		Size:      func(v string) int64 { return int64(len(v)) },
		Encode:    func(dst []byte, v string) ([]byte, error) { return append(dst, v...), nil },
		Decode:    func(data []byte, _ bool) (string, error) { return string(data), nil },
		Mark:      func(v string) (source, position string) { return "alphabet", v },
		OnSettled: func([]string) {},
		Receipt:   func(v string) string { return v },
		OnCorrupt: func(l fifo.Loss) []string { return []string{"lost: " + l.Err.Error()} },
		Since:     func(string) time.Time { return time.Now() },
		Logger:    slog.Default(),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- q.Run(ctx) }()
	for _, v := range []string{"a", "b", "c", "d"} {
		if err := q.Push(ctx, v); err != nil {
			fmt.Println(err)
		}
	}
	q.Close()

	var batch []string
	for {
		batch, err = q.Take(ctx, batch, 100, 1<<20)
		if errors.Is(err, fifo.ErrClosed) {
			break
		}
		for _, v := range batch {
			fmt.Println(v)
		}
		q.Ack(len(batch))
	}
	stop()
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output:
	// a
	// b
	// c
	// d
}
