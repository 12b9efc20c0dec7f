package nats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

const (
	// payloadScheme is the URI scheme of a reference to an object in an object store: nats-object://BUCKET/NAME.
	payloadScheme = "nats-object"
	// payloadChunk is the maximum size of an object's chunks in bytes. If max_payload of the server is small, chunks are
	// smaller.
	payloadChunk = 128 << 10
	// payloadRate is the minimum transfer rate in bytes per second. It determines the timeout for storing an object.
	payloadRate = 256 << 10
)

// PayloadStore stores the data of messages in a JetStream object store. It must be used only by the goroutine of the
// sink's drain.
type PayloadStore struct {
	cfg    PayloadConfig
	client *natsconn.Client
	own    bool // client is not shared with a sink
	log    *slog.Logger

	store jetstream.ObjectStore // nil if the object store must be opened
}

var _ sinks.PayloadStore = (*PayloadStore)(nil)

// PayloadStore returns a payload store that uses the sink's connection.
func (s *Sink) PayloadStore(cfg PayloadConfig) *PayloadStore {
	return &PayloadStore{cfg: cfg, client: &s.client, log: s.cfg.Logger}
}

// NewPayloadStore returns a payload store with a separate connection. connection.Stream and connection.Subject are
// ignored. NewPayloadStore does no I/O.
func NewPayloadStore(connection Config, cfg PayloadConfig) *PayloadStore {
	connection.Stream, connection.Subject = StreamConfig{Name: cfg.Bucket}, cfg.Bucket
	p := New(connection).PayloadStore(cfg)
	p.own = true
	return p
}

// Close closes the connection, unless it belongs to a sink.
func (c *PayloadStore) Close(ctx context.Context) error {
	if c.own {
		c.client.Close(ctx)
	}
	return nil
}

// Store implements [sinks.PayloadStore]. The name of an object consists of the name of the cluster, the id of the event
// and the beginning of the digest. Therefore a repeated call finds the object, and different data never has the same
// name.
func (c *PayloadStore) Store(ctx context.Context, m *event.Message) (ref, digest string, err error) {
	sum := sha256.New()
	sum.Write(m.Data)
	digest = hex.EncodeToString(sum.Sum(nil))
	name := m.UniqueID() + "." + digest[:16]
	ctx, cancel := context.WithTimeout(ctx, c.client.Timeout+time.Duration(len(m.Data)/payloadRate)*time.Second)
	defer cancel()
	defer c.client.EndWith(ctx)()
	if err := c.client.Connect(ctx); err != nil {
		return "", "", err
	}
	if err := c.put(ctx, name, jetstream.GetObjectDigestValue(sum), m); err != nil {
		c.store = nil // the next call opens the object store again
		return "", "", c.failure(err)
	}
	where := url.URL{Scheme: payloadScheme, Host: c.cfg.Bucket, Path: "/" + name}
	return where.String(), "sha256:" + digest, nil
}

// put stores the data of m unless the object store already has it. After a timeout or a broken connection, chunks can
// remain that no object refers to. The bridge can't remove them, because only the client library knows their names.
func (c *PayloadStore) put(ctx context.Context, name, digest string, m *event.Message) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	info, err := c.store.GetInfo(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	if err == nil {
		complete, err := c.isComplete(ctx, info, digest, len(m.Data))
		if err != nil || complete {
			return err // stored before a crash; storing it again would disturb readers of the object
		}
	}
	_, err = c.store.Put(ctx, jetstream.ObjectMeta{
		Name:        name,
		Description: "data of an event that is too large for its destination",
		Headers:     natsgo.Header{contentType: {"application/json"}},
		Metadata:    map[string]string{"id": m.ID, "source": "/clusters/" + m.Cluster, "subject": m.Subject()},
		Opts:        &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(payloadChunk, c.client.Conn().MaxPayload()/2))},
	}, bytes.NewReader(m.Data))
	return err
}

// isComplete reports whether an object has the given digest and size in bytes, whether all its chunks exist, and
// whether they are kept for long enough. The metadata of an object does not prove that its chunks exist, because a full
// bucket can accept the metadata although it rejected the chunks.
func (c *PayloadStore) isComplete(ctx context.Context, o *jetstream.ObjectInfo, digest string, size int) (bool, error) {
	stream, err := c.client.JetStream().Stream(ctx, c.streamName())
	if err != nil {
		return false, err
	}
	chunks := fmt.Sprintf("$O.%s.C.%s", c.cfg.Bucket, o.NUID)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(chunks))
	if err != nil {
		return false, err
	}
	ttl := info.Config.MaxAge
	return o.Digest == digest && o.Size == uint64(size) && info.State.Subjects[chunks] == uint64(o.Chunks) &&
		(ttl == 0 || time.Since(o.ModTime) < ttl/2), nil
}

// open opens the object store. If the object store does not exist, open creates it if the configuration allows that.
func (c *PayloadStore) open(ctx context.Context) error {
	if c.store != nil {
		return nil
	}
	js := c.client.JetStream()
	store, err := js.ObjectStore(ctx, c.cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && c.cfg.Create {
		store, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: c.cfg.Bucket, Description: "created by deltabridge", TTL: c.cfg.TTL,
			MaxBytes: c.cfg.MaxBytes, Replicas: max(c.cfg.Replicas, 1),
		})
		if err == nil {
			c.log.Info("created object store", "bucket", c.cfg.Bucket)
		}
	}
	if err == nil {
		c.store = store
	}
	return err
}

// streamName returns the name of the stream that contains the objects.
func (c *PayloadStore) streamName() string { return "OBJ_" + c.cfg.Bucket }

// failure explains why the data could not be stored.
func (c *PayloadStore) failure(err error) error {
	e := &sinks.ConnectError{
		Step: sinks.StepStream,
		Key:  "claimCheck.bucket",
		Err:  fmt.Errorf("object store %s: %w", c.cfg.Bucket, err),
	}
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		e.Err = access.Words(err, "object store %s does not exist", c.cfg.Bucket)
		e.Remedy = "create it, correct claimCheck.bucket, or set claimCheck.create: true"
	}
	e.Rejected = e.Remedy != "" || natscheck.IsAnswer(err)
	return e
}

var _ diagnose.Checker = (*PayloadStore)(nil)

// Check implements [diagnose.Checker]. It checks the servers, unless they are the servers of the sink, and the bucket.
// It does not start an embedded server and returns no findings for it.
func (c *PayloadStore) Check(ctx context.Context) []diagnose.Finding {
	if len(c.client.URLs) == 0 {
		return nil
	}
	t, found, _ := c.client.First(ctx)
	if !c.own {
		found = nil // the sink's own check reports these findings
	}
	if t == nil {
		return found
	}
	defer t.Conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.client.Timeout)
	defer cancel()
	return append(found, c.checkBucket(ctx, t.JetStream))
}

func (c *PayloadStore) checkBucket(ctx context.Context, js jetstream.JetStream) diagnose.Finding {
	f := diagnose.Finding{Step: sinks.StepStream, Target: "object store " + c.cfg.Bucket}
	stream, err := js.Stream(ctx, c.streamName())
	if errors.Is(err, jetstream.ErrStreamNotFound) && c.cfg.Create {
		f.Detail = "does not exist yet; the bridge creates it for the first event that is too large"
		return f
	}
	if err == nil && stream.CachedInfo().Config.Sealed {
		err = errors.New("it is sealed and accepts no objects: use another bucket")
	}
	if err != nil {
		return diagnose.Failed(f.Step, f.Target, c.failure(err))
	}
	info := stream.CachedInfo()
	f.Detail = fmt.Sprintf("%d bytes", info.State.Bytes)
	if ttl := info.Config.MaxAge; ttl > 0 {
		f.Detail += fmt.Sprintf(", objects are kept for %v", ttl)
	}
	return f
}
