package informer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
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

// A proxy sends the headers of a response, and then no more. Each request ends after a time limit, the status counts it
// as an error, and the informer tries again.
func TestAResponseThatStalls(t *testing.T) {
	for name, tt := range map[string]struct{ noWatchList, lists bool }{
		"list":       {noWatchList: true},
		"watch-list": {},
		"watch":      {noWatchList: true, lists: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stalled atomic.Int64
				client, err := NewClient(&rest.Config{
					Host: "http://proxy.example",
					Dial: func(context.Context, string, string) (net.Conn, error) {
						conn, proxy := net.Pipe()
						go stall(proxy, tt.lists, &stalled)
						return conn, nil
					},
				})
				do(t, err)
				source := Source{Resource: configMaps}
				i := New(Config{Source: source, ListWatch: ListWatch(client, source), NoWatchList: tt.noWatchList})
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- i.Run(ctx) }()
				time.Sleep(bodyTimeout - time.Second)
				if i.Status().Errors > 0 || stalled.Load() != 1 {
					t.Errorf("%d requests, %+v", stalled.Load(), i.Status())
				}
				time.Sleep(4 * bodyTimeout)
				if status := i.Status(); status.Errors < 3 || stalled.Load() < 4 {
					t.Errorf("%d requests, %+v", stalled.Load(), status)
				}
				cancel()
				do(t, <-ended)
			})
		})
	}
}

// stall responds to requests with headers only. If lists is true, it responds to lists with a complete list.
func stall(conn net.Conn, lists bool, stalled *atomic.Int64) {
	for requests := bufio.NewReader(conn); ; {
		r, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		header := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
		if lists && !r.URL.Query().Has("watch") {
			list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`
			_, err = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", header, len(list), list)
		} else {
			stalled.Add(1)
			_, err = fmt.Fprintf(conn, "%sTransfer-Encoding: chunked\r\n\r\n", header)
		}
		if err != nil {
			return
		}
	}
}
