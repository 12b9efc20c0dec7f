package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/bench/listwatch"
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

// selfSigned creates a self-signed certificate for 127.0.0.1, and writes it to a file for clients.
func selfSigned(caFile string) (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			1,
		),
		Subject:               pkix.Name{CommonName: "deltabridge bench"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12,
	}, os.WriteFile(caFile, text, 0o600)
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
	if err := os.WriteFile(l.kubeconfig, []byte(listwatch.Kubeconfig(l.url, l.caFile)), 0o600); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return l, nil
}

// release makes the server send the events.
func (l *listWatch) release(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+listwatch.ReleasePath, nil)
	if err != nil {
		return err
	}
	client := http.DefaultClient
	if l.caFile != "" {
		pool := x509.NewCertPool()
		text, err := os.ReadFile(l.caFile)
		if err != nil {
			return err
		}
		pool.AppendCertsFromPEM(text)
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		defer transport.CloseIdleConnections()
		client = &http.Client{Transport: transport}
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		return errors.New("release: " + response.Status)
	}
	return nil
}
