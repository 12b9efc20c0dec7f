package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/bench/listwatch"
)

// helper runs this binary as a process that a benchmark needs beside the one it measures, if the first argument names
// one. It prints its URL when it serves, and ends at SIGTERM.
func helper(args []string) (ran bool, err error) {
	if len(args) == 0 {
		return false, nil
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	switch args[0] {
	case "listwatch":
		return true, serveListWatch(ctx, args[1:])
	case "nats-server":
		return true, serveNATS(ctx, args[1:])
	}
	return false, nil
}

func serveListWatch(ctx context.Context, args []string) error {
	var o listwatch.Options
	flags := flag.NewFlagSet("listwatch", flag.ContinueOnError)
	flags.IntVar(&o.Objects, "objects", 0, "")
	flags.IntVar(&o.Events, "events", 0, "")
	flags.IntVar(&o.Keys, "keys", 0, "")
	flags.IntVar(&o.Size, "size", 0, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: listwatch.New(o), ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // watches never end by themselves
	defer stop()
	fmt.Printf("http://%s\n", listener.Addr())
	if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func serveNATS(ctx context.Context, args []string) error {
	o := &server.Options{Host: "127.0.0.1", JetStream: true, NoLog: true, NoSigs: true}
	flags := flag.NewFlagSet("nats-server", flag.ContinueOnError)
	flags.StringVar(&o.StoreDir, "dir", "", "")
	flags.IntVar(&o.Port, "port", server.RANDOM_PORT, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return err
	}
	go srv.Start() // ends with Shutdown
	if !srv.ReadyForConnections(startTimeout) {
		return errors.New("nats-server is not ready")
	}
	fmt.Println(srv.ClientURL())
	<-ctx.Done()
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// listWatch is the helper that stands in for an API server.
type listWatch struct {
	*program
	url, kubeconfig string
}

func (b *bench) startListWatch(ctx context.Context, o listwatch.Options) (*listWatch, error) {
	p, err := startSelf("listwatch", "-objects", fmt.Sprint(o.Objects), "-events", fmt.Sprint(o.Events),
		"-keys", fmt.Sprint(o.Keys), "-size", fmt.Sprint(o.Size))
	if err != nil {
		return nil, err
	}
	l := &listWatch{program: p}
	if l.url, err = p.firstWord(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	l.kubeconfig = b.path("listwatch.kubeconfig")
	if err := os.WriteFile(l.kubeconfig, []byte(listwatch.Kubeconfig(l.url, "")), 0o600); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return l, nil
}

// release lets the events follow.
func (l *listWatch) release(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+listwatch.ReleasePath, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return errors.New("release: " + response.Status)
	}
	return nil
}
