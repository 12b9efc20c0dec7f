package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

const (
	// registerBucket is the bucket with the names of the clusters that write to the streams of an account. Names are not
	// stored in the streams, because retention could remove them.
	registerBucket = "deltabridge-clusters"
	// registerMetadata is the prefix of a key in a stream's metadata. It is used if the bucket does not exist; the value
	// has the same content.
	registerMetadata = "deltabridge.cluster."
)

var _ sinks.Identified = (*Sink)(nil)

// entry is the registration of a name, as it is stored in the bucket.
type entry struct {
	Cluster string    `json:"cluster"`
	UID     string    `json:"uid"`
	Since   time.Time `json:"since"`
	// Stream is the identity of the stream that the name was registered for. If a stream is deleted and created again, its
	// old registrations no longer apply.
	Stream string      `json:"stream"`
	State  sinks.State `json:"state"`
}

// Destination implements [sinks.Identified]. It returns the name and the creation time of the stream.
func (s *Sink) Destination() string { return s.destination }

// registeredElsewhere reads the registration of a name over a connection of its own. If the stream does not exist, it
// returns no registration and no error. If the embedded server is not running, the error wraps [sinks.ErrNoRegister].
func (s *Sink) registeredElsewhere(ctx context.Context, cluster string) (sinks.Registration, error) {
	if s.cfg.Embedded != nil && s.server == nil {
		return sinks.Registration{}, fmt.Errorf("%w: the embedded server is not running", sinks.ErrNoRegister)
	}
	defer s.client.Close(ctx)
	if err := s.client.Connect(ctx); err != nil {
		return sinks.Registration{}, fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	found, err := s.Registered(ctx, cluster)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return found, err
}

// registerKey returns the bucket key of a cluster's name.
func (s *Sink) registerKey(cluster string) string {
	return event.EscapeKey.Encode(s.cfg.Stream.Name + "/" + cluster)
}

// Registered implements [sinks.Identified].
func (s *Sink) Registered(ctx context.Context, cluster string) (found sinks.Registration, err error) {
	if s.client.Conn() == nil {
		return s.registeredElsewhere(ctx, cluster)
	}
	err = s.useRegister(ctx, false, func(ctx context.Context, kv jetstream.KeyValue) error {
		e, _, err := s.entry(ctx, kv, cluster)
		found = sinks.Registration{UID: e.UID, State: e.State, Since: e.Since}
		return err
	})
	return found, err
}

// entry returns the registration of a name and the revision of its key. The revision is 0 if the key does not exist. kv
// is nil if the bucket does not exist or can't be used.
func (s *Sink) entry(ctx context.Context, kv jetstream.KeyValue, cluster string) (e entry, revision uint64, err error) {
	if kv != nil {
		found, err := kv.Get(ctx, s.registerKey(cluster))
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
		case err != nil:
			return e, 0, err
		default:
			revision = found.Revision()
			if err := json.Unmarshal(found.Value(), &e); err != nil {
				key := s.registerKey(cluster)
				return entry{}, revision, fmt.Errorf("bucket %s, key %s: not a valid entry: %w", registerBucket, key, err)
			}
		}
		if e.Stream == s.destination {
			return e, revision, nil
		}
	}
	stream, err := s.client.JetStream().Stream(ctx, s.cfg.Stream.Name)
	if err != nil {
		return entry{}, revision, err
	}
	e = entry{}
	if text := stream.CachedInfo().Config.Metadata[registerMetadata+cluster]; text != "" {
		err = json.Unmarshal([]byte(text), &e)
	}
	return e, revision, err
}

// Register implements [sinks.Identified].
func (s *Sink) Register(ctx context.Context, owner sinks.Owner, replaced string) error {
	return s.useRegister(ctx, true, func(ctx context.Context, kv jetstream.KeyValue) error {
		now, revision, err := s.entry(ctx, kv, owner.Cluster)
		if err != nil || now.UID != replaced {
			return err
		}
		text, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), s.destination, owner.State})
		switch {
		case err != nil:
			return err
		case kv == nil:
			return s.registerInMetadata(ctx, owner.Cluster, string(text))
		case revision == 0:
			_, err = kv.Create(ctx, s.registerKey(owner.Cluster), text)
		default:
			_, err = kv.Update(ctx, s.registerKey(owner.Cluster), text, revision)
		}
		if errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
			return nil // another cluster was faster
		}
		return err
	})
}

// registerInMetadata adds the registration to the metadata of the stream. If two clusters register a name at the same
// time, the last one wins, and the other one detects the conflict when it connects again.
func (s *Sink) registerInMetadata(ctx context.Context, cluster, text string) error {
	js := s.client.JetStream()
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	if config.Metadata == nil {
		config.Metadata = make(map[string]string)
	}
	config.Metadata[registerMetadata+cluster] = text
	_, err = js.UpdateStream(ctx, config)
	return err
}

// useRegister calls do with the bucket of names. kv is nil if the bucket does not exist and create is false, or if the
// client has no permission to use or create the bucket. If the server denies a request, the error wraps
// [sinks.ErrNoRegister].
func (s *Sink) useRegister(
	ctx context.Context, create bool, do func(ctx context.Context, kv jetstream.KeyValue) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	defer s.client.EndWith(ctx)()
	err := s.askRegister(ctx, func(ctx context.Context) error {
		kv, err := s.openRegister(ctx, create)
		if err != nil {
			return err
		}
		return do(ctx, kv)
	})
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, sinks.ErrNoRegister) {
		err = s.askRegister(ctx, func(ctx context.Context) error { return do(ctx, nil) })
	}
	return err
}

// openRegister returns the bucket of names. If the bucket does not exist, openRegister creates it if create is true.
func (s *Sink) openRegister(ctx context.Context, create bool) (jetstream.KeyValue, error) {
	js := s.client.JetStream()
	kv, err := js.KeyValue(ctx, registerBucket)
	if create && errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: registerBucket, Replicas: max(1, s.info.Config.Replicas),
			Description: "register of cluster names by stream; created by deltabridge",
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // another client has just created it
			kv, err = js.KeyValue(ctx, registerBucket)
		}
	}
	return kv, err
}

// askRegister calls do. If the server denies a request of do, the error wraps [sinks.ErrNoRegister].
func (s *Sink) askRegister(ctx context.Context, do func(context.Context) error) error {
	api, bucket := s.client.API(), "$KV."+registerBucket+"."
	err := s.client.AskOptional(ctx, do, api+".STREAM.", api+".DIRECT.", api+".INFO", bucket, api+"."+bucket)
	if errors.Is(err, natsgo.ErrPermissionViolation) || natscheck.IsAnswer(err) {
		return fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	return err
}
