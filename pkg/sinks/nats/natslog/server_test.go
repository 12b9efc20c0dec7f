package natslog_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

const streamName = "STATE"

// startServer starts a nats-server and returns the URL for clients.
func startServer(t *testing.T, edit func(*server.Options)) string {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 1 << 30,
	}
	if edit != nil {
		edit(opts)
	}
	_, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	return natsserver.ClientURL(opts)
}

// startCluster starts three servers, n0 to n2, that know each other. It returns their URLs, and the proxies between them.
func startCluster(t *testing.T) (urls []string, between []*sinktest.Proxy) {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		address := natsserver.FreePort(t)
		_, text, _ := strings.Cut(address, ":")
		port, _ := strconv.Atoi(text)
		proxy := sinktest.NewProxy(t, address)
		ports, between = append(ports, port), append(between, proxy)
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: proxy.Addr()})
	}
	for i, port := range ports {
		urls = append(urls, startServer(t, func(o *server.Options) {
			o.ServerName, o.Routes = fmt.Sprintf("n%d", i), routes
			o.Cluster = server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port, Advertise: between[i].Addr()}
		}))
	}
	js, probe := natsserver.Connect(t, urls[0]), jetstream.StreamConfig{Name: "PROBE", Replicas: 3}
	natsserver.CreateStream(t, js, probe) // when the servers have formed a cluster
	natsserver.DeleteStream(t, js, probe.Name)
	return urls, between
}

// open returns a log with a connection of its own, as another process has it.
func open(t *testing.T, edit func(*natslog.Config), urls ...string) *natslog.Log {
	t.Helper()
	var cfg natslog.Config
	cfg.URLs, cfg.Timeout = urls, 4*time.Second
	cfg.Stream = natslog.StreamConfig{Name: streamName, Create: true}
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	if edit != nil {
		edit(&cfg)
	}
	l := natslog.New(cfg)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// record is one record of a log.
type record struct {
	position int64
	text     string
}

// read returns what a log has from a position on.
func read(t *testing.T, l *natslog.Log, from int64) (records []record, end int64) {
	t.Helper()
	end, err := l.Read(t.Context(), from, func(position int64, data []byte) error {
		records = append(records, record{position, string(data)})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return records, end
}

// expectLog reports an error unless a log has these records and no others from a position on.
func expectLog(t *testing.T, l *natslog.Log, from, end int64, texts ...string) {
	t.Helper()
	records, got := read(t, l, from)
	var found []string
	for _, r := range records {
		found = append(found, r.text)
	}
	if strings.Join(found, " ") != strings.Join(texts, " ") || got != end {
		t.Errorf("records %q up to %d, want %q up to %d", found, got, texts, end)
	}
}

func fence(t *testing.T, l *natslog.Log) int64 {
	t.Helper()
	end, err := l.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// add appends records, each with one attempt.
func add(t *testing.T, l *natslog.Log, after int64, texts ...string) int64 {
	t.Helper()
	for _, text := range texts {
		end, err := l.Append(t.Context(), after, []byte(text))
		if err != nil {
			t.Fatalf("append %.20q after %d: %v", text, after, err)
		}
		after = end
	}
	return after
}

// relay forwards connections to a server. While it loses acknowledgements, it closes a connection instead of forwarding
// one.
type relay struct {
	url    string
	losing atomic.Bool
	lost   atomic.Int32
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	r := &relay{url: "nats://" + listener.Addr().String()}
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(target, "nats://"))
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { r.answer(in, out); _, _ = in.Close(), out.Close() }()
		}
	}()
	return r
}

func (r *relay) answer(client io.Writer, server io.Reader) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if bytes.Contains(buffer[:n], []byte(`{"stream":"`+streamName+`", "seq":`)) ||
			bytes.Contains(buffer[:n], []byte(`{"stream":"`+streamName+`","seq":`)) {
			if r.losing.CompareAndSwap(true, false) {
				r.lost.Add(1)
				return
			}
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
