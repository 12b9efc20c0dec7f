package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// registerBucket is the bucket with the names of the clusters that write to the streams of an account. Names are not
// stored in the streams, because retention could remove them.
const registerBucket = "deltabridge-clusters"

var (
	_ sinks.Identified    = (*Sink)(nil)
	_ diagnose.NameReader = (*Sink)(nil)
)

// entry is the registration of a name, as it is stored in the bucket.
type entry struct {
	Cluster string    `json:"cluster"`
	UID     string    `json:"uid"`
	Since   time.Time `json:"since"`
	// Stream is the identity of the stream that the name was registered for. If a stream is deleted and created again, its
	// old registrations no longer apply.
	Stream string `json:"stream"`
}

// Destination implements [sinks.Identified]. It returns the name and the creation time of the stream.
func (s *Sink) Destination() string { return s.destination }

// ReadName implements [diagnose.NameReader]. If the embedded server is not running, the error wraps
// [sinks.ErrNoRegister].
func (s *Sink) ReadName(ctx context.Context, cluster string) (sinks.Registration, error) {
	if s.cfg.Embedded != nil && s.server == nil {
		return sinks.Registration{}, fmt.Errorf("%w: the embedded server does not run", sinks.ErrNoRegister)
	}
	reader := &Sink{cfg: s.cfg, destination: s.destination}
	reader.client.Access, reader.client.Prober = s.client.Access, s.client.Prober
	if err := reader.client.Connect(ctx); err != nil {
		return sinks.Registration{}, fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	defer reader.client.Close(ctx)
	return reader.Registered(ctx, cluster)
}

// registerKey returns the bucket key of a cluster's name. Characters with a special meaning in keys, such as '.', are
// encoded.
func (s *Sink) registerKey(cluster string) string {
	var b strings.Builder
	for _, c := range []byte(s.cfg.Stream.Name + "/" + cluster) {
		if c == '/' || c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// Registered implements [sinks.Identified].
func (s *Sink) Registered(ctx context.Context, cluster string) (found sinks.Registration, err error) {
	err = s.useRegister(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		kv, err := js.KeyValue(ctx, registerBucket)
		if errors.Is(err, jetstream.ErrBucketNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		e, _, err := s.entry(ctx, kv, cluster)
		found = sinks.Registration{UID: e.UID, Since: e.Since}
		return err
	})
	return found, err
}

// entry returns the registration of a name at the current stream, and the revision of its key. The revision is 0 if the
// key does not exist.
func (s *Sink) entry(ctx context.Context, kv jetstream.KeyValue, cluster string) (e entry, revision uint64, err error) {
	found, err := kv.Get(ctx, s.registerKey(cluster))
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return e, 0, nil
	case err != nil:
		return e, 0, err
	}
	if err := json.Unmarshal(found.Value(), &e); err != nil {
		return entry{}, 0, fmt.Errorf("bucket %s, key %s: %w", registerBucket, s.registerKey(cluster), err)
	}
	if e.Stream != s.destination {
		e = entry{}
	}
	return e, found.Revision(), nil
}

// Register implements [sinks.Identified].
func (s *Sink) Register(ctx context.Context, owner sinks.Owner, replaced string) error {
	text, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), s.destination})
	if err != nil {
		return err
	}
	return s.useRegister(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		kv, err := s.createRegister(ctx, js)
		if err != nil {
			return err
		}
		now, revision, err := s.entry(ctx, kv, owner.Cluster)
		if err != nil || now.UID != replaced {
			return err
		}
		if revision == 0 {
			_, err = kv.Create(ctx, s.registerKey(owner.Cluster), text)
		} else {
			_, err = kv.Update(ctx, s.registerKey(owner.Cluster), text, revision)
		}
		if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return nil // another cluster was faster
		}
		return err
	})
}

// createRegister returns the bucket of names. If the bucket does not exist, createRegister creates it.
func (s *Sink) createRegister(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, registerBucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: registerBucket, Replicas: max(1, s.info.Config.Replicas),
		Description: "which cluster writes to which stream under which name; created by deltabridge",
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // another client has just created it
		return js.KeyValue(ctx, registerBucket)
	}
	return kv, err
}

// useRegister calls do, which uses the bucket of names. If the server rejects a request of do, the error wraps
// [sinks.ErrNoRegister].
func (s *Sink) useRegister(ctx context.Context, do func(context.Context, jetstream.JetStream) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.client.Interrupt)()
	js, err := jetstream.New(s.client.Conn())
	if err != nil {
		return err
	}
	s.client.Forget()
	defer s.client.Forget()
	err = s.client.Ask(ctx, func(ctx context.Context) error { return do(ctx, js) })
	if errors.Is(err, natsgo.ErrPermissionViolation) || isAPIError(err) {
		return fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	return err
}

// isAPIError reports whether err is an error of the JetStream API that will probably not change soon.
func isAPIError(err error) bool {
	api, ok := errors.AsType[jetstream.JetStreamError](err)
	return ok && api.APIError() != nil && api.APIError().Code != http.StatusServiceUnavailable
}
