package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/bench/listwatch"
	"github.com/deltabridge/deltabridge/test/poll"
)

// quiet is the time without a message after which everything that a killed bridge sent has arrived.
const quiet = time.Second

// kill ends the bridge with kill -9 under load, and measures the next process until its first new event.
func kill(ctx context.Context, b *bench) error {
	for _, to := range []struct {
		broker     string
		partitions int
	}{{jetStreamName, 0}, {kafkaName, 12}, {kafkaName, 200}} {
		if !slices.Contains(b.brokers, to.broker) {
			continue
		}
		if err := b.killWith(ctx, to.broker, to.partitions); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) killWith(ctx context.Context, name string, partitions int) (err error) {
	via := &relay{}
	if via.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	defer via.end()
	to, err := b.startBehind(ctx, via, name, partitions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	load := listwatch.Options{Objects: b.scaled(100_000), Events: b.scaled(100_000), Size: smallObject}
	runs, err := repeat(b.runs, func(n int) (sample, error) {
		return b.killOnce(ctx, to, via, load, fmt.Sprintf("kill-%s-%d-%d", name, partitions, n))
	})
	if err != nil {
		return err
	}
	if partitions > 0 {
		name = fmt.Sprintf("%s, %d partitions", name, partitions)
	}
	b.report.kill(name, runs)
	return nil
}

func (r *report) kill(broker string, runs []sample) {
	r.add(
		"kill",
		"A kill -9 while 100,000 known ConfigMaps of 2.6 KB change as fast as the changes are read. From the start of the next "+
			"process until a consumer has the first event that the killed process had not sent.",
		cell{"broker", broker},
		figure("seconds", "%.2f", runs, sample.wallSeconds),
		figure("CPU seconds", "%.2f", runs, sample.cpuSeconds),
		figure("MB from the broker", "%.2f", runs, func(s sample) float64 { return megabytes(s.received) }),
		figure("events twice in the broker", "%.0f", runs, func(s sample) float64 { return float64(s.repeated) }),
	)
}

// startBehind starts a broker to which the bridge connects through a relay.
func (b *bench) startBehind(ctx context.Context, via *relay, name string, partitions int) (broker, error) {
	front := via.Addr().String()
	if name == kafkaName {
		k, err := b.startKafka(ctx, front)
		if err != nil {
			return nil, err
		}
		k.front, k.partitions = front, partitions
		via.start(k.broker.Behind()[0])
		return k, nil
	}
	j, err := b.startJetStream(ctx)
	if err != nil {
		return nil, err
	}
	j.front = "nats://" + front
	via.start(strings.TrimPrefix(j.url, "nats://"))
	return j, nil
}

func (b *bench) killOnce(
	ctx context.Context,
	to broker,
	via *relay,
	load listwatch.Options,
	run string,
) (s sample, err error) {
	setup := bridgeSetup{sinks: []string{"bench"}}
	r, server, end, err := b.replaying(ctx, to, load, setup)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, end()) }()
	a := &arrivals{program: r.program, revisions: map[string]bool{}}
	stop, err := to.consume(ctx, setup.sinks[0], a.take)
	if err != nil {
		return s, err
	}
	defer stop()
	if err := a.await(ctx, load.Objects); err != nil {
		return s, err
	}
	if err := server.release(ctx); err != nil {
		return s, err
	}
	if err := a.await(ctx, load.Objects+load.Events*3/10); err != nil {
		return s, err
	}
	if err := errors.Join(r.Kill(), a.settle(ctx)); err != nil {
		return s, err
	}
	before, _ := a.count()
	all := load.Objects + load.Events
	if before == all {
		return s, errors.New("all events had arrived before the kill")
	}
	received, began := via.received.Load(), time.Now()
	again, err := b.runBridge(ctx, r.dir)
	if err != nil {
		return s, err
	}
	*r, a.program = *again, again.program // so that end stops it
	finish := b.profile(ctx, r, run, profileLength)
	if err := a.await(ctx, before+1); err != nil {
		return s, err
	}
	s.seconds, s.received = time.Since(began).Seconds(), via.received.Load()-received
	s.cpu, err = r.cpu()
	if err = errors.Join(err, a.await(ctx, all), finish()); err != nil {
		return s, err
	}
	_, messages := a.count()
	s.repeated = messages - all
	b.say("%s: first new event after %.2f s, %.2f s CPU, %.2f MB from the broker; %d of %d events twice",
		run, s.seconds, s.cpu.Seconds(), megabytes(s.received), s.repeated, load.Events)
	return s, nil
}

// arrivals notes which states a consumer has received.
type arrivals struct {
	program *program // sends them

	mu        sync.Mutex
	revisions map[string]bool
	messages  int
}

func (a *arrivals) take(data []byte) {
	_, after, ok := bytes.Cut(data, []byte(`"revision":"`)) // equal to the resourceVersion, and only in objects
	if !ok {
		return
	}
	revision, _, _ := bytes.Cut(after, []byte(`"`))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revisions[string(revision)] = true
	a.messages++
}

// count returns the number of different states, and of messages.
func (a *arrivals) count() (states, messages int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.revisions), a.messages
}

// await waits for the given number of different states.
func (a *arrivals) await(ctx context.Context, states int) error {
	return until(ctx, startTimeout, func() error {
		count, _ := a.count()
		if a.program.Ended() {
			return poll.Permanent(a.program.failed(errors.New("exited unexpectedly")))
		}
		if count < states {
			return fmt.Errorf("%d of %d states have arrived", count, states)
		}
		return nil
	})
}

// settle waits until nothing arrives any more.
func (a *arrivals) settle(ctx context.Context) error {
	count, since := -1, time.Now()
	return until(ctx, startTimeout, func() error {
		if _, now := a.count(); now != count {
			count, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return errors.New("events of the killed process still arrive")
		}
		return nil
	})
}

// relay forwards connections to a broker, counts the bytes that the broker sends, and can delay them.
type relay struct {
	net.Listener
	group    sync.WaitGroup
	received atomic.Int64
	delay    atomic.Int64 // nanoseconds
}

// start accepts connections, until end is called.
func (r *relay) start(target string) {
	r.group.Go(func() {
		for {
			in, err := r.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			r.group.Go(func() { pass(out, in) })
			r.group.Go(func() { pass(in, io.TeeReader(out, r)) })
		}
	})
}

// Write counts the bytes that the broker has sent, before the client gets them.
func (r *relay) Write(p []byte) (int, error) {
	if delay := time.Duration(r.delay.Load()); delay > 0 {
		<-time.After(delay)
	}
	r.received.Add(int64(len(p)))
	return len(p), nil
}

// pass copies until one side ends, and then closes the destination, which also ends the opposite direction.
func pass(to net.Conn, from io.Reader) {
	_, _ = io.Copy(to, from) // either side may end at any time
	to.Close()
}

// end must be called when the broker and its clients have ended.
func (r *relay) end() {
	r.Close()
	r.group.Wait()
}
