// Command floor is the cheapest bridge that one can think of, and what the real one is compared with: it opens the raw
// watch with net/http and hands each line, unread, to the broker. It promises nothing: no order, no ids, no checkpoint,
// no retry. A line that the broker refuses ends it.
//
// It prints "ready" when the watch is open. After -count lines it waits until the broker has acknowledged everything,
// prints "done", and lives on until SIGTERM, so that it can be looked at. At SIGTERM before that it waits for the
// acknowledgements too.
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
	kafka, topic       string
	partitions         int
}

func main() {
	var o options
	flag.StringVar(&o.url, "url", "", "the watch, with its parameters")
	flag.StringVar(&o.token, "token", "", "bearer `token` for it")
	flag.StringVar(&o.caFile, "ca", "", "certificate `file` of its authority")
	flag.BoolVar(&o.http1, "http1", false, "no HTTP/2")
	flag.IntVar(&o.count, "count", 0, "lines to hand over; 0: until SIGTERM")
	flag.StringVar(&o.nats, "nats", "", "`URL` of a NATS server with JetStream")
	flag.StringVar(&o.subject, "subject", "floor", "the one subject for all lines")
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

// sender is a broker. A line given to send is not used again by the caller.
type sender interface {
	send(line []byte) error
	// finish waits until everything is acknowledged.
	finish() error
}

func run(ctx context.Context, o options) error {
	var to sender
	if o.kafka != "" {
		to = newKafka(o)
	} else {
		js, err := newNATS(o)
		if err != nil {
			return err
		}
		to = js
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
	transport.DisableCompression = true // dear, and of no use on one machine
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
		text, _ := bufio.NewReader(response.Body).ReadString('\n') // all that can be said of the failure
		return nil, errors.Join(fmt.Errorf("%s: %s", response.Status, text), response.Body.Close())
	}
	return response.Body, nil
}
