package nats

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	// claimScheme begins the reference to an object in an object store: nats-object://BUCKET/NAME.
	claimScheme = "nats-object"
	// claimChunk is the size of an object's parts, in bytes, where the server takes that much.
	claimChunk = 128 << 10
	// claimRate bounds how long an object may take, in bytes per second.
	claimRate = 256 << 10
)

// Claims keeps data of messages in a JetStream object store. It is used by one goroutine, that of the sink's drain.
type Claims struct {
	cfg   ClaimConfig
	sink  *Sink // whose connection is used
	own   bool  // nobody else uses it
	store jetstream.ObjectStore
	kept  jetstream.Stream // what store lies in
	ttl   time.Duration    // of the bucket as it is
}

var _ sinks.Claims = (*Claims)(nil)

// Claims gives an object store on the sink's own connection.
func (s *Sink) Claims(cfg ClaimConfig) *Claims { return &Claims{cfg: cfg, sink: s} }

// NewClaims gives an object store on a connection of its own. Of connection, stream and subject are not used. It does no
// I/O. The error names every mistake.
func NewClaims(connection Config, cfg ClaimConfig) (*Claims, error) {
	connection.Stream, connection.Subject = StreamConfig{Name: cfg.Bucket}, cfg.Bucket
	s, err := New(connection)
	if err != nil {
		return nil, err
	}
	return &Claims{cfg: cfg, sink: s, own: true}, nil
}

// Close gives up the connection, if it is the store's own.
func (c *Claims) Close(ctx context.Context) error {
	if !c.own {
		return nil
	}
	return c.sink.Close(ctx)
}

// Store implements [sinks.Claims]. The name of an object is the cluster's name, the event's id and the beginning of its digest, so that a
// repetition finds it there, and no other data comes under a name that was sent.
func (c *Claims) Store(ctx context.Context, m *event.Message) (ref, digest string, err error) {
	sum := sha256.New()
	sum.Write(m.Data)
	digest = hex.EncodeToString(sum.Sum(nil))
	name := m.UniqueID() + "." + digest[:16]
	ctx, cancel := context.WithTimeout(ctx, c.sink.cfg.AckTimeout+time.Duration(len(m.Data)/claimRate)*time.Second)
	defer cancel()
	defer context.AfterFunc(ctx, c.sink.dial.interrupt)()
	if err := c.sink.connect(ctx); err != nil {
		return "", "", err
	}
	if err := c.put(ctx, name, jetstream.GetObjectDigestValue(sum), m); err != nil {
		c.store = nil // look for it again
		return "", "", c.failure(err)
	}
	where := url.URL{Scheme: claimScheme, Host: c.cfg.Bucket, Path: "/" + name}
	return where.String(), "sha256:" + digest, nil
}

// put stores the data of m, unless it is there. An attempt that a timeout or the end of a connection cut off can leave parts
// behind that no object refers to: their name is known to the client library alone.
func (c *Claims) put(ctx context.Context, name, digest string, m *event.Message) error {
	if err := c.open(ctx); err != nil {
		return err
	}
	info, err := c.store.GetInfo(ctx, name)
	if err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return err
	}
	if err == nil && (c.ttl == 0 || time.Since(info.ModTime) < c.ttl/2) {
		whole, err := c.isWhole(ctx, info, digest, len(m.Data))
		if err != nil || whole {
			return err // from before a crash; storing it again would disturb who reads it
		}
	}
	_, err = c.store.Put(ctx, jetstream.ObjectMeta{
		Name:        name,
		Description: "data of an event that its destination takes no message for",
		Headers:     natsgo.Header{contentType: {"application/json"}},
		Metadata:    map[string]string{"id": m.ID, "source": "/clusters/" + m.Cluster, "subject": m.Subject()},
		Opts:        &jetstream.ObjectMetaOptions{ChunkSize: uint32(min(claimChunk, c.sink.conn.MaxPayload()/2))},
	}, bytes.NewReader(m.Data))
	return err
}

// isWhole reports whether all parts of an object are there, and are the data with this digest and size, in bytes. The
// description of an object tells nothing of that: it is accepted where its parts were refused, as by a full bucket.
func (c *Claims) isWhole(ctx context.Context, info *jetstream.ObjectInfo, digest string, size int) (bool, error) {
	if info.Digest != digest || info.Size != uint64(size) {
		return false, nil
	}
	parts := fmt.Sprintf("$O.%s.C.%s", c.cfg.Bucket, info.NUID)
	stream, err := c.kept.Info(ctx, jetstream.WithSubjectFilter(parts))
	if err != nil {
		return false, err
	}
	return stream.State.Subjects[parts] == uint64(info.Chunks), nil
}

// open finds the bucket, or creates it where it is missing and the configuration says so.
func (c *Claims) open(ctx context.Context) error {
	if c.store != nil {
		return nil
	}
	js, err := jetstream.New(c.sink.conn)
	if err != nil {
		return err
	}
	store, err := js.ObjectStore(ctx, c.cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && c.cfg.Create {
		store, err = js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
			Bucket: c.cfg.Bucket, Description: "created by deltabridge", TTL: c.cfg.TTL,
			MaxBytes: c.cfg.MaxBytes, Replicas: max(c.cfg.Replicas, 1),
		})
		if err == nil {
			c.sink.cfg.Logger.Info("created object store", "bucket", c.cfg.Bucket)
		}
	}
	if err != nil {
		return err
	}
	status, err := store.Status(ctx)
	if err != nil {
		return err
	}
	kept, err := js.Stream(ctx, "OBJ_"+c.cfg.Bucket)
	if err != nil {
		return err
	}
	c.store, c.kept, c.ttl = store, kept, status.TTL()
	return nil
}

// failure is why the data could not be stored, in words.
func (c *Claims) failure(err error) error {
	e := &sinks.ConnectError{Step: sinks.StepStream, Key: "claimCheck.bucket", Err: fmt.Errorf("object store %s: %w", c.cfg.Bucket, err)}
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		e.Err = access.Words(err, "object store %s does not exist", c.cfg.Bucket)
		e.Remedy = "create it, correct claimCheck.bucket, or set claimCheck.create: true"
	}
	api, isAPI := errors.AsType[jetstream.JetStreamError](err)
	e.Rejected = isAPI && (api.APIError() == nil || !passing(api.APIError()))
	return e
}

var _ sinks.Checker = (*Claims)(nil)

// Check implements [sinks.Checker]: the servers, unless they are those of the sink, and the bucket. An embedded server is not
// started, and has nothing to find.
func (c *Claims) Check(ctx context.Context) []sinks.Finding {
	if c.sink.cfg.Embedded != nil {
		return nil
	}
	found, conn, _ := c.sink.checkServers(ctx)
	if !c.own {
		found = nil // the check of the sink tells of them
	}
	if conn == nil {
		return found
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, c.sink.cfg.AckTimeout)
	defer cancel()
	return append(found, c.checkBucket(ctx, conn))
}

func (c *Claims) checkBucket(ctx context.Context, conn *natsgo.Conn) sinks.Finding {
	f := sinks.Finding{Step: sinks.StepStream, Target: "object store " + c.cfg.Bucket}
	js, err := jetstream.New(conn)
	if err != nil {
		return sinks.Failed(f.Step, f.Target, err)
	}
	store, err := js.ObjectStore(ctx, c.cfg.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) && c.cfg.Create {
		f.Detail = "not there yet: it will be created with the first event that is too large"
		return f
	}
	if err != nil {
		return sinks.Failed(f.Step, f.Target, c.failure(err))
	}
	status, err := store.Status(ctx)
	switch {
	case err != nil:
		return sinks.Failed(f.Step, f.Target, c.failure(err))
	case status.Sealed():
		return sinks.Failed(f.Step, f.Target, c.failure(errors.New("it is sealed and takes nothing: name another")))
	}
	f.Detail = fmt.Sprintf("%d bytes", status.Size())
	if status.TTL() > 0 {
		f.Detail += fmt.Sprintf(", objects are kept for %v", status.TTL())
	}
	return f
}
