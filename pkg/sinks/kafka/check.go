package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

var _ sinks.Checker = (*Sink)(nil)

// Check implements [sinks.Checker]: the files, each configured broker, each broker that the cluster then names, what the
// client may do, and the topics. It asks for a producer id, which uses up a number and nothing else.
func (s *Sink) Check(ctx context.Context) []sinks.Finding {
	c := newCluster(&s.cfg)
	defer c.close()
	files := sinks.Finding{Step: sinks.StepFiles, Target: "kafka"}
	if names := present(s.cfg.files()); len(names) > 0 {
		files.Detail = strings.Join(names, ", ")
		if err := s.cfg.checkFiles(); err != nil {
			return []sinks.Finding{sinks.Failed(sinks.StepFiles, "kafka", err)}
		}
	}
	var findings []sinks.Finding
	if files.Detail != "" {
		findings = append(findings, files)
	}
	found, reached := c.checkBrokers(ctx, s.cfg.Brokers)
	findings = append(findings, found...)
	if !reached {
		return findings
	}
	if _, err := c.metadata(ctx, nil); err != nil {
		return append(findings, sinks.Failed(sinks.StepProtocol, "cluster", err))
	}
	s.cluster.id = c.id
	named := slices.DeleteFunc(slices.Sorted(maps.Values(c.brokers)), func(addr string) bool {
		return slices.Contains(s.cfg.Brokers, addr)
	})
	found, _ = c.checkBrokers(ctx, named)
	findings = append(findings, found...)
	findings = append(findings, c.checkProducer(ctx))
	return append(findings, s.checkTopics(ctx, c)...)
}

func present(files []string) []string {
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// checkBrokers tries each broker by itself, all at once, and reports whether one of them will do.
func (c *cluster) checkBrokers(ctx context.Context, addrs []string) (all []sinks.Finding, reached bool) {
	each := make([][]sinks.Finding, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() { each[i] = c.checkBroker(ctx, addr) })
	}
	wg.Wait()
	for _, findings := range each {
		all = append(all, findings...)
		last := findings[len(findings)-1]
		reached = reached || last.Err == nil
	}
	return all, reached
}

func (c *cluster) checkBroker(ctx context.Context, addr string) (findings []sinks.Finding) {
	passed := func(step, detail string, warn bool) {
		f := sinks.Finding{Step: step, Target: addr, Detail: detail, Warn: warn}
		switch {
		case warn && step == sinks.StepAuthenticate:
			f.Remedy = "use kafka.tls, or a SCRAM mechanism"
		case warn:
			f.Remedy = "renew the certificate"
		}
		findings = append(findings, f)
	}
	failed := func(err error) []sinks.Finding {
		return append(findings, sinks.Failed(sinks.StepConnect, addr, err))
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return failed(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RequestTimeout)
	defer cancel()
	if net.ParseIP(host) == nil {
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			return failed(c.dialError(ctx, addr, err))
		}
		passed(sinks.StepResolve, strings.Join(ips, ", "), false)
	}
	k, err := c.open(ctx, addr, passed)
	if err != nil {
		return failed(err)
	}
	// A listener that demands SASL shows it only now.
	if _, err := k.exchange(ctx, &metadata.Request{TopicNames: []string{}}); err != nil {
		k.close()
		if isClosed(err) && c.cfg.SASL.Mechanism == "" {
			err = k.demandsSASL()
		}
		return failed(err)
	}
	c.put(addr, k)
	return findings
}

// checkProducer reports whether this client can be an idempotent producer, which is what keeps order over failures.
func (c *cluster) checkProducer(ctx context.Context) sinks.Finding {
	_, err := c.producerID(ctx)
	f := sinks.Finding{Step: sinks.StepAuthorize, Target: "idempotent producer"}
	switch {
	case errors.Is(err, errNoProducerID):
		f.Warn = true
		f.Detail = "without a producer id, events are repeated after a time-out, and can come after newer ones: " + err.Error()
		f.Remedy = fmt.Sprintf("give %s the permission IdempotentWrite on the cluster, or use Kafka 3.0 or newer", c.cfg.SASL.who())
	case err != nil:
		f = sinks.Failed(sinks.StepAuthorize, f.Target, err)
	default:
		f.Detail = "the cluster grants a producer id"
	}
	return f
}
