package main

import (
	"context"
	"crypto/tls"
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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltabridge/deltabridge/bench/listwatch"
	"github.com/deltabridge/deltabridge/test/certs"
)

// helper runs this binary as a helper process of a benchmark if the first argument is the name of one. A helper prints
// its URL when it is ready, and exits at SIGTERM.
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
	caFile := flags.String("tls", "", "")
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
	if *caFile == "" {
		fmt.Printf("http://%s\n", listener.Addr())
		err = srv.Serve(listener)
	} else if srv.TLSConfig, err = selfSigned(*caFile); err == nil {
		fmt.Printf("https://%s\n", listener.Addr())
		err = srv.ServeTLS(listener, "", "")
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// selfSigned returns the configuration of a server on 127.0.0.1, and writes the certificate of its authority to a file
// for clients.
func selfSigned(caFile string) (*tls.Config, error) {
	authority, err := certs.New("deltabridge bench")
	if err != nil {
		return nil, err
	}
	cert, key, err := authority.Issue(certs.Options{Name: "deltabridge bench", Hosts: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		errors.Join(err, os.WriteFile(caFile, authority.PEM(), 0o600))
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

// listWatch is the helper that simulates an API server.
type listWatch struct {
	*program
	url, kubeconfig string
	caFile          string // empty without TLS
	client          kubernetes.Interface
}

// floorTo returns the arguments with which the floor watches the objects.
func (l *listWatch) floorTo(b *bench, parameters string) []string {
	args := []string{"-url", l.url + listwatch.Path + parameters}
	if l.caFile != "" {
		args = append(args, "-ca", l.caFile, fmt.Sprintf("-http1=%t", b.floorHTTP1))
	}
	return args
}

func (b *bench) startListWatch(ctx context.Context, o listwatch.Options) (*listWatch, error) {
	l := &listWatch{}
	args := []string{
		"listwatch", "-objects", fmt.Sprint(o.Objects), "-events", fmt.Sprint(o.Events),
		"-keys", fmt.Sprint(o.Keys), "-size", fmt.Sprint(o.Size),
	}
	if b.tls {
		l.caFile = b.path("listwatch-ca.pem")
		args = append(args, "-tls", l.caFile)
	}
	p, err := startSelf(args...)
	if err != nil {
		return nil, err
	}
	l.program = p
	if l.url, err = p.firstWord(ctx); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	l.kubeconfig = b.path("listwatch.kubeconfig")
	err = os.WriteFile(l.kubeconfig, []byte(listwatch.Kubeconfig(l.url, l.caFile)), 0o600)
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.BuildConfigFromFlags("", l.kubeconfig)
	}
	if err == nil {
		err = rest.LoadTLSFiles(config) // client-go shares connections by the names of files, and each helper has its own CA
	}
	if err == nil {
		l.client, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return l, nil
}

// release makes the server send the events.
func (l *listWatch) release(ctx context.Context) error {
	return l.client.CoreV1().RESTClient().Post().AbsPath(listwatch.ReleasePath).Do(ctx).Error()
}
