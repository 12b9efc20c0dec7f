package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
	// MaxPayload is large enough for the largest object that etcd accepts, together with its old state and headers.
	MaxPayload = 8 << 20

	readyWithin = 10 * time.Second
	lockName    = "deltabridge.lock"
)

// Config configures a NATS server with JetStream inside the bridge. It has no authentication: anyone who can connect to
// its address can read and write.
type Config struct {
	// The address to listen on, as `host:port`. With port 0, the system chooses a free port.
	Listen string `yaml:"listen" pattern:":[0-9]+$" default:"127.0.0.1:4222" example:"127.0.0.1:14222"`
	// The directory of the streams. The bridge creates it if it does not exist. Only one bridge at a time can use the
	// directory. A relative path is relative to the working directory.
	StoreDir string `yaml:"storeDir" pattern:"." default:"./data/nats" example:"/var/lib/deltabridge/nats"`
	// The maximum size of all streams on disk. 0 means three quarters of the space that is free when the server starts.
	MaxStore int64 `yaml:"maxStore" default:"0" min:"0" example:"10Gi"`
	// Writes each message to the disk before it is acknowledged. Otherwise a power failure or a crash of the machine can
	// lose the messages of the last two minutes. A crash of the bridge process loses no messages in either case.
	SyncAlways bool `yaml:"syncAlways" default:"false" example:"true"`
}

// Server is a running server. It has all methods of the nats-server.
type Server struct {
	*server.Server
	unlock func() error
}

// Start starts the server. It returns when the server accepts connections.
func Start(cfg Config, log *slog.Logger) (_ *Server, err error) {
	address, err := checkListen(cfg.Listen)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.StoreDir, 0o700); err != nil {
		return nil, err
	}
	unlock, err := lockStore(cfg.StoreDir)
	if err != nil {
		return nil, err
	}
	opts := &server.Options{
		ServerName: "deltabridge", Host: address.IP.String(), Port: address.Port,
		JetStream: true, StoreDir: cfg.StoreDir, JetStreamMaxStore: cfg.MaxStore, SyncAlways: cfg.SyncAlways,
		MaxPayload: MaxPayload, NoSigs: true,
	}
	if strings.HasSuffix(cfg.Listen, ":0") {
		opts.Port = server.RANDOM_PORT
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, errors.Join(err, unlock())
	}
	logger := &serverLog{log: log}
	srv.SetLoggerV2(logger, false, false, false)
	s := &Server{Server: srv, unlock: unlock}
	srv.Start()
	if !srv.ReadyForConnections(readyWithin) || !srv.JetStreamEnabled() {
		s.Stop()
		err = fmt.Errorf("the embedded server did not start on %s", address)
		if last := logger.last.Load(); last != nil {
			err = fmt.Errorf("%w: %s", err, *last)
		}
		return nil, err
	}
	if !address.IP.IsLoopback() {
		const warning = "embedded nats-server listens on a non-loopback address without authentication"
		log.Warn(warning, "address", srv.Addr().String())
	}
	return s, nil
}

// Stop stops the server. When it returns, another process may use the store directory.
func (s *Server) Stop() {
	s.Shutdown()
	s.WaitForShutdown()
	_ = s.unlock()
}

// checkListen returns the TCP address to listen on. If the address cannot be used, the error is a
// [sinks.ConnectError]. The check exists because nats-server does not report why it is not ready.
func checkListen(address string) (*net.TCPAddr, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, &sinks.ConnectError{
			Step: sinks.StepConnect, Address: address, Key: "nats.embedded.listen",
			Remedy: "stop the other server there, or set another address in nats.embedded.listen",
			Err:    fmt.Errorf("the embedded server cannot listen on this address: %w", access.Plain(err)),
		}
	}
	return l.Addr().(*net.TCPAddr), l.Close()
}

// lockStore locks dir for this process. nats-server does not lock it, and two processes would destroy the files.
func lockStore(dir string) (unlock func() error, err error) {
	unlock, err = files.Lock(filepath.Join(dir, lockName), 0)
	if errors.Is(err, files.ErrLocked) {
		err = &sinks.ConnectError{
			Step:   sinks.StepFiles,
			Key:    "nats.embedded.storeDir",
			Remedy: "stop the other bridge, or give this one another directory",
			Err:    fmt.Errorf("store %s is %w", dir, err),
		}
	}
	return unlock, err
}

// Check reports whether the server could start. It creates nothing.
func Check(cfg Config) []diagnose.Finding {
	const noStore = "the store of the embedded server does not exist yet; the bridge creates it at startup"
	store := diagnose.Finding{Step: sinks.StepFiles, Target: cfg.StoreDir, Detail: noStore}
	if _, err := os.Stat(filepath.Join(cfg.StoreDir, lockName)); !errors.Is(err, fs.ErrNotExist) {
		store.Detail = "the store of the embedded server is free"
		if unlock, err := lockStore(cfg.StoreDir); err != nil {
			store = diagnose.Failed(sinks.StepFiles, cfg.StoreDir, err)
		} else {
			_ = unlock()
		}
	}
	const free = "the address of the embedded server is free"
	port := diagnose.Finding{Step: sinks.StepConnect, Target: cfg.Listen, Detail: free}
	if _, err := checkListen(cfg.Listen); err != nil {
		port = diagnose.Failed(sinks.StepConnect, cfg.Listen, err)
	}
	return []diagnose.Finding{store, port}
}

// serverLog forwards the log of the nats-server without debug and trace messages. It stores the last error.
type serverLog struct {
	log  *slog.Logger
	last atomic.Pointer[string]
}

// Noticef implements server.Logger.
func (l *serverLog) Noticef(format string, v ...any) {
	l.log.Debug("nats-server", "text", fmt.Sprintf(format, v...))
}

// Warnf implements server.Logger.
func (l *serverLog) Warnf(format string, v ...any) {
	l.log.Warn("nats-server", "text", fmt.Sprintf(format, v...))
}

// Errorf implements server.Logger.
func (l *serverLog) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	l.last.Store(&text)
	l.log.Error("nats-server", "text", text)
}

// Fatalf implements server.Logger.
func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Debugf implements server.Logger.
func (l *serverLog) Debugf(string, ...any) {}

// Tracef implements server.Logger.
func (l *serverLog) Tracef(string, ...any) {}
