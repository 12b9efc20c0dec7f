package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const (
	// registerBucket holds the names of the clusters that write to the streams of an account: no retention of a stream
	// removes them.
	registerBucket = "deltabridge-clusters"
	// registerMetadata begins a member of a stream's metadata that says the same, where there is no bucket.
	registerMetadata = "deltabridge.cluster."
)

var (
	_ sinks.Identified    = (*Sink)(nil)
	_ diagnose.NameReader = (*Sink)(nil)
)

// entry is the value of a name's key.
type entry struct {
	Cluster string    `json:"cluster"`
	UID     string    `json:"uid"`
	Since   time.Time `json:"since"`
	// Stream is the destination for which it was registered: a stream that was created again knows no names.
	Stream string `json:"stream"`
}

// Destination implements [sinks.Identified]: the stream's name and when it was created.
func (s *Sink) Destination() string { return s.destination }

// ReadName implements [diagnose.NameReader]. A stream that does not exist knows no names, and an embedded server that
// does not run can't be asked.
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
	found, err := reader.Registered(ctx, cluster)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return found, err
}

// registerKey is the key of a cluster's name: '.' has a meaning in keys.
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
	err = s.useRegister(ctx, false, func(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
		e, _, err := s.entry(ctx, js, kv, cluster)
		found = sinks.Registration{UID: e.UID, Since: e.Since}
		return err
	})
	return found, err
}

// entry returns what is known of a name, and the revision of its key: 0 if there is none. kv is nil if there is no
// bucket.
func (s *Sink) entry(
	ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, cluster string,
) (e entry, revision uint64, err error) {
	if kv != nil {
		found, err := kv.Get(ctx, s.registerKey(cluster))
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
		case err != nil:
			return e, 0, err
		default:
			revision = found.Revision()
			if err := json.Unmarshal(found.Value(), &e); err != nil {
				return entry{}, revision, fmt.Errorf("bucket %s, key %s: %w", registerBucket, s.registerKey(cluster), err)
			}
		}
		if e.Stream == s.destination {
			return e, revision, nil
		}
	}
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
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
	return s.useRegister(ctx, true, func(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue) error {
		now, revision, err := s.entry(ctx, js, kv, owner.Cluster)
		if err != nil || now.UID != replaced {
			return err
		}
		text, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), s.destination})
		switch {
		case err != nil:
			return err
		case kv == nil:
			return s.registerInMetadata(ctx, js, owner.Cluster, string(text))
		case revision == 0:
			_, err = kv.Create(ctx, s.registerKey(owner.Cluster), text)
		default:
			_, err = kv.Update(ctx, s.registerKey(owner.Cluster), text, revision)
		}
		if isConflict(err) { // another one was first
			return nil
		}
		return err
	})
}

func isConflict(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return errors.Is(err, jetstream.ErrKeyExists) || ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) // of a bucket with replicas
}

// registerInMetadata adds a member to the stream's metadata. Of two clusters that do so at once the last one wins, and
// the other one finds out when it connects again.
func (s *Sink) registerInMetadata(ctx context.Context, js jetstream.JetStream, cluster, text string) error {
	stream, err := js.Stream(ctx, s.cfg.Stream.Name)
	if err != nil {
		return err
	}
	config := stream.CachedInfo().Config
	config.Metadata = maps.Clone(config.Metadata)
	if config.Metadata == nil {
		config.Metadata = map[string]string{}
	}
	config.Metadata[registerMetadata+cluster] = text
	_, err = js.UpdateStream(ctx, config)
	return err
}

// useRegister calls do with the bucket of names; nil if it is missing and not to be created, or can't be. What the
// server denies is an error that wraps [sinks.ErrNoRegister].
func (s *Sink) useRegister(
	ctx context.Context, create bool, do func(context.Context, jetstream.JetStream, jetstream.KeyValue) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.AckTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, s.client.Interrupt)()
	js, err := jetstream.New(s.client.Conn())
	if err != nil {
		return err
	}
	kv, err := s.openRegister(ctx, js, create)
	if err != nil {
		return err
	}
	err = s.askRegister(ctx, func(ctx context.Context) error { return do(ctx, js, kv) })
	if kv != nil && errors.Is(err, sinks.ErrNoRegister) { // the bucket is there, and is not for this user
		err = s.askRegister(ctx, func(ctx context.Context) error { return do(ctx, js, nil) })
	}
	return err
}

// openRegister returns the bucket of names; nil if it is missing and not to be created, or can't be.
func (s *Sink) openRegister(
	ctx context.Context,
	js jetstream.JetStream,
	create bool,
) (kv jetstream.KeyValue, err error) {
	err = s.askRegister(ctx, func(ctx context.Context) error {
		kv, err = js.KeyValue(ctx, registerBucket)
		if !create || !errors.Is(err, jetstream.ErrBucketNotFound) {
			return err
		}
		kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: registerBucket, Replicas: max(1, s.info.Config.Replicas),
			Description: "which cluster writes to which stream under which name; created by deltabridge",
		})
		if errors.Is(err, jetstream.ErrBucketExists) { // created meanwhile
			kv, err = js.KeyValue(ctx, registerBucket)
		}
		return err
	})
	if errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, sinks.ErrNoRegister) {
		return nil, nil
	}
	return kv, err
}

// askRegister calls do, and makes what the server denies meanwhile an error that wraps [sinks.ErrNoRegister].
func (s *Sink) askRegister(ctx context.Context, do func(context.Context) error) error {
	s.client.Forget()
	defer s.client.Forget()
	err := s.client.Ask(ctx, do)
	if errors.Is(err, natsgo.ErrPermissionViolation) || isAPIError(err) && !errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	return err
}

// isAPIError reports whether JetStream rejected something, and will do so again.
func isAPIError(err error) bool {
	api, ok := errors.AsType[jetstream.JetStreamError](err)
	return ok && api.APIError() != nil && api.APIError().Code != http.StatusServiceUnavailable
}
