package informer

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// A proxy accepts connections and requests, and never responds. Each request ends after a time limit, the status says so,
// and the informer tries again.
func TestAServerThatNeverResponds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests atomic.Int64
		client, err := NewClient(&rest.Config{
			Host: "http://proxy.example",
			Dial: func(context.Context, string, string) (net.Conn, error) {
				requests.Add(1)
				conn, proxy := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, proxy) }()
				return conn, nil
			},
		})
		do(t, err)
		source := Source{Resource: configMaps}
		i := New(Config{Source: source, ListWatch: ListWatch(client, source)})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- i.Run(ctx) }()
		began := time.Now()
		time.Sleep(answerTimeout + time.Second)
		status := i.Status()
		if since := status.FailingSince.Sub(
			began,
		); since != answerTimeout ||
			!strings.Contains(status.LastError, "did not respond") {
			t.Errorf("failing since %s: %q", since, status.LastError)
		}
		time.Sleep(5 * answerTimeout)
		if requests.Load() < 5 {
			t.Errorf("%d requests", requests.Load())
		}
		cancel()
		do(t, <-ended)
	})
}
