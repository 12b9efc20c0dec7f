package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

// links are the connections of one bridge: to the API server, to the three servers of the state log in JetStream, to
// those of its sinks, and to three Kafka brokers. Each goes through a proxy.
type links struct{ api, log, nats, kafka []*sinktest.Proxy }

func newLinks(t *testing.T) *links {
	t.Helper()
	some := func(count int) (proxies []*sinktest.Proxy) {
		for range count {
			proxies = append(proxies, sinktest.NewProxy(t, ""))
		}
		return proxies
	}
	return &links{api: some(1), log: some(3), nats: some(3), kafka: some(3)}
}

func (l *links) all() []*sinktest.Proxy { return slices.Concat(l.api, l.log, l.nats, l.kafka) }

// freeze holds what is sent through proxies until thaw.
func freeze(proxies []*sinktest.Proxy) {
	for _, p := range proxies {
		p.Freeze()
	}
}

func thaw(proxies []*sinktest.Proxy) {
	for _, p := range proxies {
		p.Thaw()
	}
}

func natsURLs(proxies []*sinktest.Proxy) (urls []string) {
	for _, p := range proxies {
		urls = append(urls, "nats://"+p.Addr())
	}
	return urls
}

// behind is r as a bridge with these links sees it.
func (r *replicated) behind(l *links) *replicated {
	through := *r
	through.natsURLs, through.brokers = natsURLs(l.nats), nil
	for _, p := range l.kafka {
		through.brokers = append(through.brokers, p.Addr())
	}
	return &through
}

// kubeconfig returns that of the cluster for a bridge with these links.
func (r *replicated) kubeconfig(l *links) string {
	r.t.Helper()
	text, err := os.ReadFile(r.c.Kubeconfig())
	if err != nil {
		r.t.Fatal(err)
	}
	file := filepath.Join(r.t.TempDir(), "kubeconfig")
	text = []byte(strings.ReplaceAll(string(text), r.c.APIServerURL(), "https://"+l.api[0].Addr()))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return file
}
