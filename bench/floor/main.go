// Command floor is the cheapest conceivable bridge, as a baseline for the real one: it opens a watch with net/http and
// sends each line, unparsed, to the broker. It guarantees nothing: no order, no ids, no checkpoint, no retry. It exits
// if the broker rejects a line.
//
// With -events it sends the same messages as the bridge, which shows what their form costs.
//
// It prints "ready" when the watch is open. After -count lines it waits for all acknowledgements, prints "done", and
// keeps running until SIGTERM, so that it can be measured. If SIGTERM comes earlier, it also waits for the
// acknowledgements.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
)

type options struct {
	url, token, caFile string
	http1              bool
	count              int
	nats, subject      string
	events             bool
	kafka, topic       string
	partitions         int
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "`URL` of the watch, including its parameters")
	flag.StringVar(&o.token, "token", "", "bearer `token` for the watch")
	flag.StringVar(&o.caFile, "ca", "", "CA certificate `file` for the watch")
	flag.BoolVar(&o.http1, "http1", false, "disable HTTP/2")
	flag.IntVar(&o.count, "count", 0, "number of lines to send; 0 means until SIGTERM")
	flag.StringVar(&o.nats, "nats", "", "`URL` of a NATS server with JetStream")
	flag.StringVar(&o.subject, "subject", "floor", "subject for all lines")
	flag.BoolVar(&o.events, "events", false, "with -nats: send the bridge's events instead of lines")
	flag.StringVar(&o.kafka, "kafka", "", "`address` of a Kafka broker, instead of -nats")
	flag.StringVar(&o.topic, "topic", "floor", "topic for all lines")
	flag.IntVar(&o.partitions, "partitions", 1, "partitions of the topic")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

// sender sends lines to a broker. The caller of send must not use the line afterwards.
type sender interface {
	send(line []byte) error
	// finish waits until everything is acknowledged.
	finish() error
}

func newSender(o options) (sender, error) {
	switch {
	case o.kafka != "":
		return newKafka(o), nil
	case o.events:
		return newNATSEvents(o)
	}
	return newNATS(o)
}

func run(ctx context.Context, o options) error {
	to, err := newSender(o)
	if err != nil {
		return err
	}
	body, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer body.Close()
	fmt.Println("ready")
	if err := each(body, o.count, to.send); err != nil && ctx.Err() == nil {
		return err
	}
	if err := to.finish(); err != nil {
		return err
	}
	fmt.Println("done")
	<-ctx.Done()
	return nil
}

// open starts the watch.
func open(ctx context.Context, o options) (io.ReadCloser, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true // costs CPU and saves nothing on one machine
	if o.http1 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
	}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", o.caFile)
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return nil, err
	}
	if o.token != "" {
		request.Header.Set("Authorization", "Bearer "+o.token)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		text, _ := bufio.NewReader(response.Body).ReadString('\n') // the error message, as far as it can be read
		return nil, errors.Join(fmt.Errorf("%s: %s", response.Status, text), response.Body.Close())
	}
	return response.Body, nil
}
