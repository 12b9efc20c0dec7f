package kafka

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/freeport"
	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
)

// The user that the SASL listeners know.
const (
	User     = "alice"
	Password = "alice-secret"
)

const (
	startTimeout = 4 * time.Minute // generous: machines of a CI are slow
	stopTimeout  = 2 * time.Minute
)

// Broker is one Kafka process. Its methods must not be called at once from several goroutines.
type Broker struct {
	dir        string
	jars       string
	archive    string   // the class-data archive; empty if it is being made
	node       int      // its id
	voters     []string // the controllers of its cluster, as ID@HOST:PORT: all of its nodes
	properties []string
	proxies    []string // addresses of proxies, each before a listener of its own
	behind     []string // the addresses of these listeners
	ports      ports
	tokenKey   *ecdsa.PrivateKey // signs access tokens
	process    *process.Process  // nil while it is down
}

// Start runs a broker on the data in dir, which it fills if it is empty, and returns when it answers.
// Each of properties is a line "name=value" that is added to its server.properties. The caller stops it.
func Start(ctx context.Context, dir string, properties ...string) (*Broker, error) {
	return StartBehind(ctx, dir, nil, properties...)
}

// StartBehind is Start with a plaintext listener more for each of proxies, which are addresses: a client that connects
// through that proxy stays with it, since the listener advertises the proxy's address. [Broker.Behind] says where the
// proxies have to connect to.
func StartBehind(ctx context.Context, dir string, proxies []string, properties ...string) (*Broker, error) {
	b := &Broker{dir: dir, properties: properties, proxies: proxies}
	return b, startAll(ctx, []*Broker{b})
}

// StartCluster is [StartBehind] for a cluster of several brokers, each with a folder in dir. The first proxy is of the
// first node, and so on; after the last node, the next proxy is of the first node again. A topic has three replicas, of
// which two must be in sync, unless it is created with other settings.
func StartCluster(
	ctx context.Context,
	dir string,
	nodes int,
	proxies []string,
	properties ...string,
) ([]*Broker, error) {
	brokers := make([]*Broker, nodes)
	for n := range brokers {
		b := &Broker{
			dir:        filepath.Join(dir, strconv.Itoa(n+1)),
			properties: slices.Concat(clusterProperties, properties),
		}
		for proxy := n; proxy < len(proxies); proxy += nodes {
			b.proxies = append(b.proxies, proxies[proxy])
		}
		brokers[n] = b
	}
	return brokers, startAll(ctx, brokers)
}

// startAll starts the brokers of one cluster. If one fails, it kills the others.
func startAll(ctx context.Context, brokers []*Broker) error {
	jars, err := install(ctx)
	if err != nil {
		return err
	}
	archive, err := classArchive(ctx, jars)
	if err != nil {
		return fmt.Errorf("class-data archive: %w", err)
	}
	if err := choosePorts(brokers); err != nil {
		return err
	}
	var voters []string
	for n, b := range brokers {
		b.jars, b.archive, b.node = jars, archive, n+1
		voters = append(voters, b.voter())
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, b := range brokers {
		b.voters = voters
		group.Go(func() error { return b.prepare(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("preparing a Kafka broker: %w", err)
	}
	for _, b := range brokers { // none gets ready without the others
		err = errors.Join(err, b.launch())
	}
	for _, b := range brokers {
		if err == nil {
			err = b.awaitReady(ctx)
		}
	}
	if err != nil {
		for _, b := range brokers {
			err = errors.Join(err, b.Kill())
		}
	}
	return err
}

// voter is the broker as the quorum of controllers names it.
func (b *Broker) voter() string {
	return fmt.Sprintf("%d@%s", b.node, freeport.Address(b.ports.controller))
}

// Addr is the plaintext listener's host:port.
func (b *Broker) Addr() string { return freeport.Address(b.ports.plain) }

// SASLAddr is the host:port of the listener that demands SASL, without TLS.
func (b *Broker) SASLAddr() string { return freeport.Address(b.ports.sasl) }

// TLSAddr is the host:port of the TLS listener, without SASL.
func (b *Broker) TLSAddr() string { return freeport.Address(b.ports.tls) }

// MutualTLSAddr is the host:port of the listener that demands a client certificate ([Broker.ClientCA]), without SASL.
func (b *Broker) MutualTLSAddr() string { return freeport.Address(b.ports.mutual) }

// SASLTLSAddr is the host:port of the listener that demands SASL, over TLS.
func (b *Broker) SASLTLSAddr() string { return freeport.Address(b.ports.saslTLS) }

// Behind gives the addresses of the listeners that are behind the proxies of [StartBehind], in their order.
func (b *Broker) Behind() []string { return b.behind }

// ClientCA is the authority whose client certificates the listener at MutualTLSAddr takes.
func (b *Broker) ClientCA() (*certs.Authority, error) { return certs.Load(b.clientsFile()) }

func (b *Broker) clientsFile() string { return filepath.Join(b.dir, "clients.pem") }

// CAFile is the PEM file with the certificate of the authority that signed the broker's.
func (b *Broker) CAFile() string { return filepath.Join(b.dir, "ca.pem") }

// LogFile is what the broker prints, over all its lives.
func (b *Broker) LogFile() string { return filepath.Join(b.dir, "broker.log") }

// PID is the process id of the running broker; 0 while it is down.
func (b *Broker) PID() int {
	if b.process == nil {
		return 0
	}
	return b.process.Pid
}

// Stop ends the broker in good order. Stopping a stopped broker does nothing.
func (b *Broker) Stop() error {
	p := b.process
	b.process = nil
	if p != nil && !p.Stop(context.Background(), stopTimeout) {
		return fmt.Errorf("the Kafka broker did not end within %v and was killed; its log is %s", stopTimeout, b.LogFile())
	}
	return nil
}

// Kill ends the broker at once, as a crash would.
func (b *Broker) Kill() error {
	p := b.process
	b.process = nil
	if p == nil {
		return nil
	}
	return p.Kill()
}

// Restart stops the broker if it runs, and starts it on its data and its ports. It returns when the broker answers,
// for which most nodes of its cluster must run.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.Stop(); err != nil {
		return err
	}
	if err := b.launch(); err != nil {
		return err
	}
	if err := b.awaitReady(ctx); err != nil {
		return errors.Join(err, b.Kill())
	}
	return nil
}

// Pause freezes the broker: it accepts connections (the kernel does) and answers nothing, until Resume.
func (b *Broker) Pause() error { return b.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (b *Broker) Resume() error { return b.signal(syscall.SIGCONT) }

func (b *Broker) signal(s syscall.Signal) error {
	if b.process == nil {
		return errors.New("the Kafka broker is not running")
	}
	return b.process.Signal(s)
}

// java is the command line of a class of the broker's jars.
func (b *Broker) java(ctx context.Context, flags []string, class string, args ...string) *exec.Cmd {
	if b.archive != "" {
		flags = append(flags, "-XX:SharedArchiveFile="+b.archive)
	}
	flags = append(flags,
		"-Xms64m", b.heap(), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Djava.awt.headless=true", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://"+b.keysFile(),
		"-Dlog4j2.configurationFile="+filepath.Join(b.dir, "log4j2.xml"),
		"-cp", filepath.Join(b.jars, "*"), class,
	)
	cmd := exec.CommandContext(ctx, "java", append(flags, args...)...)
	cmd.SysProcAttr = process.Attr()
	return cmd
}

// heap is the limit of the heap. The nodes of a cluster divide the work, and the machine.
func (b *Broker) heap() string {
	if len(b.voters) > 1 {
		return "-Xmx256m"
	}
	return "-Xmx320m"
}

// launch starts the process, with more flags of the JVM.
func (b *Broker) launch(flags ...string) error {
	log, err := os.OpenFile(b.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := b.java(context.Background(), flags, "kafka.Kafka", filepath.Join(b.dir, "server.properties"))
	cmd.Stdout, cmd.Stderr = log, log

	if b.process, err = process.Start(cmd); err != nil {
		return fmt.Errorf("starting the Kafka broker: %w", err)
	}
	return nil
}

// awaitReady returns when the broker lists itself in the cluster's metadata and gives out producer ids.
func (b *Broker) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	err := poll.Until(ctx, 50*time.Millisecond, startTimeout, func() error {
		err := b.probe(ctx)
		if err != nil && b.process.Ended() {
			return poll.Permanent(fmt.Errorf("it ended: %w", b.process.Wait()))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the Kafka broker is not ready: %w\n%s", err, process.Tail(b.LogFile(), 30))
	}
	return nil
}

func (b *Broker) probe(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.RequestRetries(0),
		kgo.DialTimeout(10*time.Second), kgo.RequestTimeoutOverhead(10*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	meta, err := kadm.NewClient(client).BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	if ids := meta.Brokers.NodeIDs(); !slices.Contains(ids, int32(b.node)) || meta.Controller < 0 {
		return fmt.Errorf("brokers %d, controller %d", ids, meta.Controller)
	}
	id, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(id.ErrorCode)
}

func (b *Broker) run(ctx context.Context, class string, args ...string) error {
	text, err := b.java(ctx, nil, class, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", class, strings.Join(args, " "), err, text)
	}
	return nil
}
