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

// registerBucket is the bucket with the names of the clusters that write to the streams of an account. Names are not
// stored in the streams, because retention could remove them.
const registerBucket = "deltabridge-clusters"

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

// registeredElsewhere reads the registration of a name over a connection of its own. If the embedded server is not
// running, the error wraps [sinks.ErrNoRegister].
func (s *Sink) registeredElsewhere(ctx context.Context, cluster string) (sinks.Registration, error) {
	if s.cfg.Embedded != nil && s.server == nil {
		return sinks.Registration{}, fmt.Errorf("%w: the embedded server is not running", sinks.ErrNoRegister)
	}
	defer s.client.Close(ctx)
	if err := s.client.Connect(ctx); err != nil {
		return sinks.Registration{}, fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	return s.Registered(ctx, cluster)
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
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		err = nil
	}
	return found, err
}

// entry returns the registration of a name and the revision of its key. The revision is 0 if the key does not exist.
func (s *Sink) entry(ctx context.Context, kv jetstream.KeyValue, cluster string) (e entry, revision uint64, err error) {
	key := s.registerKey(cluster)
	found, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return entry{}, 0, nil
	}
	if err != nil {
		return entry{}, 0, err
	}
	if err := json.Unmarshal(found.Value(), &e); err != nil {
		return entry{}, 0, fmt.Errorf("bucket %s, key %s: not a valid entry: %w", registerBucket, key, err)
	}
	if e.Stream != s.destination {
		e = entry{}
	}
	return e, found.Revision(), nil
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

// useRegister calls do with the bucket of names. If the bucket does not exist, useRegister creates it if create is
// true; otherwise the error wraps [jetstream.ErrBucketNotFound]. If the server denies a request, it wraps
// [sinks.ErrNoRegister].
func (s *Sink) useRegister(
	ctx context.Context, create bool, do func(ctx context.Context, kv jetstream.KeyValue) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	defer s.client.EndWith(ctx)()
	api, bucket := s.client.API(), "$KV."+registerBucket+"."
	err := s.client.AskOptional(ctx, func(ctx context.Context) error {
		kv, err := s.openRegister(ctx, create)
		if err != nil {
			return err
		}
		return do(ctx, kv)
	}, api+".STREAM.", api+".DIRECT.", api+".INFO", bucket, api+"."+bucket)
	denied := errors.Is(err, natsgo.ErrPermissionViolation) || natscheck.IsAnswer(err)
	if denied && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
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
