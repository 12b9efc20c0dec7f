package nats

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	embeddedReady = 10 * time.Second
	// embeddedMaxPayload holds the largest object that etcd takes, with its old state and headers.
	embeddedMaxPayload = 8 << 20
	lockName           = "deltabridge.lock"
)

// embedded is a running server.
type embedded struct {
	srv  *server.Server
	lock *os.File
}

// startEmbedded returns when the server takes connections.
func startEmbedded(cfg EmbeddedConfig, log *slog.Logger) (_ *embedded, err error) {
	host, portText, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen %q: %w", cfg.Listen, err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("listen %q: %w", cfg.Listen, err)
	}
	if err := probe(cfg.Listen); err != nil {
		return nil, err
	}
	lock, err := lockStore(cfg.StoreDir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	opts := &server.Options{
		ServerName: "deltabridge", Host: host, Port: int(port), DontListen: false,
		JetStream: true, StoreDir: cfg.StoreDir, JetStreamMaxStore: cfg.MaxStore, SyncAlways: cfg.SyncAlways,
		MaxPayload: embeddedMaxPayload, NoSigs: true,
	}
	if port == 0 {
		opts.Port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	logger := &serverLog{log: log}
	srv.SetLoggerV2(logger, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(embeddedReady) || !srv.JetStreamEnabled() {
		srv.Shutdown()
		srv.WaitForShutdown()
		return nil, errors.Join(fmt.Errorf("did not start on %s", cfg.Listen), logger.lastError())
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() {
		log.Warn("embedded nats-server listens beyond loopback, without authentication", "address", srv.Addr().String())
	}
	return &embedded{srv: srv, lock: lock}, nil
}

// probe fails, with the reason in words, if the address can't be listened on. nats-server itself would wait for its
// readiness until the time is up.
func probe(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return &sinks.ConnectError{
			Step: sinks.StepConnect, Address: address, Key: "nats.embedded.listen", Remedy: "stop the other server there, or set another address in nats.embedded.listen",
			Err: fmt.Errorf("the embedded server can't listen there; is another server running? %w", access.Plain(err)),
		}
	}
	return l.Close()
}

// lockStore makes sure that no other process writes to dir: nats-server does not, and two would ruin the files.
func lockStore(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		return nil, storeInUse(dir, err)
	}
	return f, nil
}

func storeInUse(dir string, err error) error {
	return &sinks.ConnectError{
		Step: sinks.StepFiles, Key: "nats.embedded.storeDir", Remedy: "stop the other bridge, or give this one another folder",
		Err: fmt.Errorf("store %s is in use by another process: %w", dir, err),
	}
}

// checkEmbedded reports whether the embedded server could start. It leaves nothing behind.
func checkEmbedded(cfg *EmbeddedConfig) []sinks.Finding {
	listen := cfg.Listen
	if listen == "" {
		listen = DefaultEmbeddedListen
	}
	store := sinks.Finding{Step: sinks.StepFiles, Target: cfg.StoreDir, Detail: "the store of the embedded server is free"}
	f, err := os.OpenFile(filepath.Join(cfg.StoreDir, lockName), os.O_RDWR, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		store.Detail = "the store of the embedded server does not exist, and is created at the start"
	case err != nil:
		store = sinks.Failed(sinks.StepFiles, cfg.StoreDir, &sinks.ConnectError{Step: sinks.StepFiles, Key: "nats.embedded.storeDir", Err: err})
	default:
		if err := lockFile(f); err != nil {
			store = sinks.Failed(sinks.StepFiles, cfg.StoreDir, storeInUse(cfg.StoreDir, err))
		}
		_ = f.Close()
	}
	port := sinks.Finding{Step: sinks.StepConnect, Target: listen, Detail: "the address of the embedded server is free"}
	if err := probe(listen); err != nil {
		port = sinks.Failed(sinks.StepConnect, listen, err)
	}
	return []sinks.Finding{store, port}
}

func (e *embedded) url() string { return e.srv.ClientURL() }

func (e *embedded) stop() {
	e.srv.Shutdown()
	e.srv.WaitForShutdown()
	_ = e.lock.Close()
}

// serverLog passes the server's log on, without its chatter, and keeps the last error.
type serverLog struct {
	log *slog.Logger

	mu  sync.Mutex
	err error
}

func (l *serverLog) lastError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *serverLog) keep(format string, v []any) string {
	text := fmt.Sprintf(format, v...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = errors.New(text)
	return text
}

func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats-server", "text", fmt.Sprintf(format, v...))
}

func (l *serverLog) Errorf(format string, v ...any) {
	l.log.Error("nats-server", "text", l.keep(format, v))
}

func (l *serverLog) Fatalf(format string, v ...any) {
	l.log.Error("nats-server", "text", l.keep(format, v))
}
func (l *serverLog) Debugf(string, ...any) {}
func (l *serverLog) Tracef(string, ...any) {}
