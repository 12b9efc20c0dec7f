package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

// registerBucket is the key-value bucket with the names of the clusters that write to the streams of an account. The retention of
// a stream does not remove them.
const registerBucket = "deltabridge-clusters"

var (
	_ sinks.Identified    = (*Sink)(nil)
	_ diagnose.NameReader = (*Sink)(nil)
)

// entry is the value of a key: who owns a name.
type entry struct {
	Cluster string    `json:"cluster"`
	UID     string    `json:"uid"`
	Since   time.Time `json:"since"`
	// Stream is the destination for which the name was registered. A stream that was created again has no names.
	Stream string `json:"stream"`
}

// Destination implements [sinks.Identified]. It returns the stream's name and creation time.
func (s *Sink) Destination() string { return s.destination }

// ReadName implements [diagnose.NameReader]. An embedded server that does not run can't be asked.
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

// registerKey returns the key of a cluster's name. What a key can't contain, and '.', is '=' and two hexadecimal digits.
func (s *Sink) registerKey(cluster string) string {
	escapes := strings.NewReplacer("%", "=", "+", "=20", ".", "=2E", "~", "=7E")
	return escapes.Replace(url.QueryEscape(s.cfg.Stream.Name)) + "/" + escapes.Replace(url.QueryEscape(cluster))
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

// entry returns the registration of a name for this stream, and the revision of its key. Both are zero if there is none.
func (s *Sink) entry(ctx context.Context, kv jetstream.KeyValue, cluster string) (e entry, revision uint64, err error) {
	found, err := kv.Get(ctx, s.registerKey(cluster))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return entry{}, 0, nil
	}
	if err != nil {
		return entry{}, 0, err
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
	return s.useRegister(ctx, func(ctx context.Context, js jetstream.JetStream) error {
		kv, err := s.createRegister(ctx, js)
		if err != nil {
			return err
		}
		present, revision, err := s.entry(ctx, kv, owner.Cluster)
		if err != nil || present.UID != replaced {
			return err
		}
		text, err := json.Marshal(entry{owner.Cluster, owner.UID, time.Now().UTC(), s.destination})
		if err != nil {
			return err
		}
		if revision == 0 {
			_, err = kv.Create(ctx, s.registerKey(owner.Cluster), text)
		} else {
			_, err = kv.Update(ctx, s.registerKey(owner.Cluster), text, revision)
		}
		if isConflict(err) { // another cluster was first
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

// createRegister returns the bucket of names, and creates it if it does not exist.
func (s *Sink) createRegister(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
	kv, err := js.KeyValue(ctx, registerBucket)
	if !errors.Is(err, jetstream.ErrBucketNotFound) {
		return kv, err
	}
	kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: registerBucket, Replicas: s.info.Config.Replicas,
		Description: "which cluster writes to which stream under which name; created by deltabridge",
	})
	if errors.Is(err, jetstream.ErrBucketExists) { // created meanwhile
		return js.KeyValue(ctx, registerBucket)
	}
	return kv, err
}

// useRegister calls do. The error wraps [sinks.ErrNoRegister] if the server denies something that do asks for.
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
	api, isAPI := errors.AsType[jetstream.JetStreamError](err)
	isAPI = isAPI && api.APIError() != nil && api.APIError().Code != http.StatusServiceUnavailable
	if isAPI || errors.Is(err, natsgo.ErrPermissionViolation) {
		return fmt.Errorf("%w: %w", sinks.ErrNoRegister, err)
	}
	return err
}
